"""DSpark: the three-stage drafter (the model's specification, section 7);
reads the rings, returns rows and proposals, writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Columns, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig
from tensorfold.network.attention import Projections
from tensorfold.network.forward import Network
from tensorfold.network.hyper import HyperConnection
from tensorfold.network.moe import Moe
from tensorfold.state.caches import Caches

# draws draft i of every slot from its logits float32 [S, V], given the drafts before it int32 [S, i]
Draw = Callable[[int, mx.array, mx.array], mx.array]


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
        return b.pack(b.rope(b.rms_norm(b.matvec_fp8(main, self.wkv), self.projections.kv_norm), table), RowKind.WINDOW)

    def __call__(
        self, x: mx.array, pre: mx.array, ring: mx.array, places: mx.array, table: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Streams and pre of S * B block rows -> streams and pre."""
        x, pre, _ = self.attn_hc(x, pre, lambda h: (self._attend(h, ring, places, table), None))
        x, pre, _ = self.ffn_hc(x, pre, lambda h: (self.moe(h), None))
        return x, pre

    def _attend(self, x: mx.array, ring: mx.array, places: mx.array, table: mx.array) -> mx.array:
        p = self.projections
        q, _, row = p.queries_and_row(x, table)
        return p.output(self.backend.attend(q, [Columns(ring, row, places, RowKind.WINDOW)], p.sink), table)


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
        self.markov_head = backend.load_f32(source, f"{last}.markov_head.head.weight")
        self.confidence = backend.load_f32(source, f"{last}.confidence_head.proj.weight")

    def ingest(self, taps: mx.array, table: mx.array) -> list[mx.array]:
        """Taps bf16 [R, taps * D] of committed rows -> packed ring rows uint8 [R, bytes] a stage."""
        b = self.backend
        main = b.rms_norm(b.matvec_fp8(b.act_quant_fp8(taps), self.main_proj), self.main_norm)
        main = b.act_quant_fp8(main)
        return [stage.context_row(main, table) for stage in self.stages]

    def propose(
        self, caches: Caches, slots: mx.array, tokens: mx.array, position: mx.array, table: mx.array, draw: Draw
    ) -> Proposals:
        """Drafts after `tokens` int32 [S], which follow the last ingested positions int32 [S] of `slots` int32 [S].

        table: rotary table float32 [S, B, rd/2, 2] of positions position+1 .. position+B.
        """
        b, block = self.backend, self.block
        count = tokens.shape[0]
        noise = mx.full((count, block - 1), self.config.dspark_noise_token_id, mx.int32)
        x, pre = self.network.embed(mx.concatenate([tokens[:, None], noise], 1).reshape(-1))
        places = mx.repeat(self._places(caches, slots, position), block, 0)
        table = table.reshape(count * block, *table.shape[2:])
        for stage, ring in zip(self.stages, caches.rings):
            x, pre = stage(x, pre, ring, places, table)
        hidden = b.hc_collapse(x, pre)
        base = self.network.head.logits(b.rms_norm(hidden, self.norm)).reshape(count, block, -1)
        return self._walk(hidden.reshape(count, block, -1), base, tokens, draw)

    def _walk(self, hidden: mx.array, base: mx.array, tokens: mx.array, draw: Draw) -> Proposals:
        """The Markov steps: each draft's logits depend on the draft before it."""
        b = self.backend
        drafts, logits, confidence = [tokens], [], []
        for i in range(self.block):
            before = b.embed(drafts[-1], self.markov_embed)
            confidence.append(b.matvec_f32(mx.concatenate([hidden[:, i], before], -1), self.confidence)[:, 0])
            logits.append(base[:, i] + b.matvec_f32(before, self.markov_head))
            drafts.append(
                draw(i, logits[-1], mx.stack(drafts[1:], 1) if i else mx.zeros((tokens.shape[0], 0), mx.int32))
            )
        return Proposals(mx.stack(drafts[1:], 1), mx.stack(confidence, 1), mx.stack(logits, 1))

    def _places(self, caches: Caches, slots: mx.array, position: mx.array) -> mx.array:
        """int32 [S, W + B]: the ring's rows in slot order, then the block's own rows, then empty."""
        width, block = self.config.sliding_window, self.block
        column = mx.array(np.arange(width + block, dtype=np.int32))[None]
        filled = mx.minimum(position + 1, width)[:, None]
        ring = slots[:, None] * width + column
        own = caches.slots * width + mx.arange(slots.shape[0], dtype=mx.int32)[:, None] * block + column - filled
        return mx.where(column < filled, ring, mx.where(column < filled + block, own, -1))
