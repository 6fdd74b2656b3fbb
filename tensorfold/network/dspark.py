"""DSpark: the three-stage drafter (docs/model.md#drafter);
reads the rings, returns rows and proposals, writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Columns, Quantised, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig
from tensorfold.network.attention import Projections
from tensorfold.network.forward import Network
from tensorfold.network.hyper import HyperConnection, Streams
from tensorfold.network.moe import Moe
from tensorfold.state.caches import Caches

# draws draft i of every slot from its logits float32 [S, V], given the drafts before it int32 [S, i]
DraftDraw = Callable[[int, mx.array, mx.array], mx.array]


@dataclass(frozen=True)
class Proposals:
    """Drafts int32 [S, B], confidence logits float32 [S, B] and the logits float32 [S, B, V] they were drawn from."""

    ids: mx.array
    confidence: mx.array
    logits: mx.array


class Stage:
    """One stage: a layer with ring attention, not causal inside its block."""

    def __init__(self, source: WeightSource, prefix: str, config: ModelConfig, backend: Backend):
        self.backend = backend
        self.attn_hc = HyperConnection(source, prefix, "attn", backend)
        self.projections = Projections(source, prefix, config, backend)
        self.wkv = backend.rows_of(self.projections.first, config.q_lora_rank, config.head_dim)
        self.ffn_hc = HyperConnection(source, prefix, "ffn", backend)
        active = config.dspark_num_experts_per_tok
        self.moe = Moe(source, prefix, config, backend, config.dspark_n_routed_experts, active)

    def context_row(self, main: mx.array, table: mx.array) -> mx.array:
        """Quantised main rows -> packed ring rows uint8 [R, bytes]."""
        b = self.backend
        return b.norm_rope_pack(b.matvec_fp8(main, self.wkv), self.projections.kv_norm, table, RowKind.WINDOW)

    def __call__(
        self, s: Streams, ring: mx.array, places: mx.array, table: mx.array, following: Stage | None
    ) -> Streams:
        """Streams of S * B block rows -> streams."""
        s, _ = self.attn_hc(s, lambda _, q: (self._attend(q, ring, places, table), None), self.ffn_hc)
        s, _ = self.ffn_hc(s, lambda h, q: (self.moe(h, q), None), None if following is None else following.attn_hc)
        return s

    def _attend(self, x: Quantised, ring: mx.array, places: mx.array, table: mx.array) -> mx.array:
        p = self.projections
        q, _, row = p.queries_and_row(x, table)
        return p.attend(q, table, [Columns(ring, row, places, RowKind.WINDOW)])


class Drafter:
    """Proposes the next tokens of several slots in one pass; shares the target's embedding and head."""

    def __init__(
        self,
        source: WeightSource,
        config: ModelConfig,
        backend: Backend,
        network: Network,
        on_stage: Callable[[], object] = lambda: None,
    ):
        self.config, self.backend, self.network = config, backend, network
        self.block = config.dspark_block_size
        self.main_proj = backend.load_fp8(source, ["mtp.0.main_proj"])
        self.main_norm = source.array("mtp.0.main_norm.weight")
        count = config.num_nextn_predict_layers
        self.stages = []
        for k in range(count):
            self.stages.append(Stage(source, f"mtp.{k}", config, backend))
            on_stage()
        last = f"mtp.{count - 1}"
        self.norm = source.array(f"{last}.norm.weight")
        self.markov_embed = source.array(f"{last}.markov_head.embed.weight")
        self.markov_head = backend.load_matrix(source, f"{last}.markov_head.head.weight")
        self.confidence = backend.load_matrix(source, f"{last}.confidence_head.proj.weight")

        # on kernels a graph is built once a shape, then replayed
        graph: Any = mx.compile if backend.traceable else lambda function: function
        self._ingest, self._block, self._warm = map(graph, (self._ingest_rows, self._block_rows, self._warm_rows))

    def ingest(self, taps: mx.array, table: mx.array) -> list[mx.array]:
        """Taps bf16 [R, taps * D] of committed rows -> packed ring rows uint8 [R, bytes] a stage."""
        return list(self._ingest(taps, table))

    def _ingest_rows(self, taps: mx.array, table: mx.array) -> list[mx.array]:
        b = self.backend
        main = b.rms_norm(b.matvec_fp8(b.act_quant_fp8(taps), self.main_proj), self.main_norm)
        main = b.act_quant_fp8(main)
        return [stage.context_row(main, table) for stage in self.stages]

    def propose(
        self, caches: Caches, slots: mx.array, tokens: mx.array, position: mx.array, table: mx.array, draw: DraftDraw
    ) -> Proposals:
        """Drafts after `tokens` int32 [S], which follow the last ingested positions int32 [S] of `slots` int32 [S].

        table: rotary table float32 [S, B, rd/2, 2] of positions position+1 .. position+B.
        """
        hidden, base = self._block(caches.rings, slots, tokens, position, table)
        drafts, before, logits = self._walk(base, tokens, draw)
        joined = mx.concatenate([hidden, mx.stack(before, 1)], -1)
        confidence = self.backend.matvec_f32(joined.reshape(-1, joined.shape[-1]), self.confidence)
        return Proposals(mx.stack(drafts, 1), confidence.reshape(hidden.shape[:2]), mx.stack(logits, 1))

    def propose_warm(
        self, caches: Caches, slots: mx.array, tokens: mx.array, position: mx.array, table: mx.array,
        temperature: mx.array, seed: mx.array,
    ) -> mx.array:  # fmt: skip
        """The drafts of `propose`, int32 [S, B], by the backend's own draw, for slots that ask for no more than a
        temperature: float32 [S] and seeds uint32 [S, 2]; one graph from the rings to the last draft."""
        rows = slots, tokens, position, table, temperature, seed
        drafts: mx.array = self._warm(caches.rings, *rows)
        return drafts

    def _warm_rows(
        self, rings: list[mx.array], slots: mx.array, tokens: mx.array, position: mx.array, table: mx.array,
        temperature: mx.array, seed: mx.array,
    ) -> mx.array:  # fmt: skip
        pick = self.backend.draw
        if pick is None:
            raise ValueError(f"backend {self.backend.name} has no draw of its own: use propose")

        ahead = position[None] + mx.arange(2, 2 + self.block, dtype=mx.int32)[:, None]

        def draw(i: int, logits: mx.array, _: mx.array) -> mx.array:
            return pick(logits, temperature, seed, ahead[i])[0]

        _, base = self._block_rows(rings, slots, tokens, position, table)
        return mx.stack(self._walk(base, tokens, draw)[0], 1)

    def _block_rows(
        self, rings: list[mx.array], slots: mx.array, tokens: mx.array, position: mx.array, table: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Hidden rows bf16 [S, B, D] and the head's logits float32 [S, B, V] of every slot's block."""
        b, block = self.backend, self.block
        count = tokens.shape[0]
        noise = mx.full((count, block - 1), self.config.dspark_noise_token_id, mx.int32)
        s = self.network.embed(mx.concatenate([tokens[:, None], noise], 1).reshape(-1))
        places = mx.repeat(self._places(rings[0].shape[0], slots, position), block, 0)
        table = table.reshape(count * block, *table.shape[2:])
        for stage, following, ring in zip(self.stages, [*self.stages[1:], None], rings):
            s = stage(s, ring, places, table, following)
        hidden = b.hc_collapse(s.x, s.pre)
        base = self.network.head.logits(b.rms_norm(hidden, self.norm)).reshape(count, block, -1)
        return hidden.reshape(count, block, -1), base

    def _walk(
        self, base: mx.array, tokens: mx.array, draw: DraftDraw
    ) -> tuple[list[mx.array], list[mx.array], list[mx.array]]:
        """By Markov steps, each [S] or [S, ...]: the drafts, the embedding of the token before each, and its logits."""
        b, none = self.backend, mx.zeros((tokens.shape[0], 0), mx.int32)
        drafts, before, logits = list[mx.array](), list[mx.array](), list[mx.array]()
        for i in range(self.block):
            before.append(b.embed(drafts[-1] if i else tokens, self.markov_embed))
            logits.append(base[:, i] + b.matvec_f32(before[-1], self.markov_head))
            drafts.append(draw(i, logits[-1], mx.stack(drafts, 1) if i else none))
        return drafts, before, logits

    def _places(self, held: int, slots: mx.array, position: mx.array) -> mx.array:
        """int32 [S, W + B]: the slot's rows of a ring of `held` rows in order, then the block's own, then empty."""
        width, block = self.config.sliding_window, self.block
        column = mx.array(np.arange(width + block, dtype=np.int32))[None]
        filled = mx.minimum(position + 1, width)[:, None]
        ring = slots[:, None] * width + column
        own = held + mx.arange(slots.shape[0], dtype=mx.int32)[:, None] * block + column - filled
        return mx.where(column < filled, ring, mx.where(column < filled + block, own, -1))
