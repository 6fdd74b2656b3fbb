"""Runs the network's sublayers on a trace's inputs: what they gave beside what they should; states no bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Columns
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops.backend import OpsBackend
from tensorfold.config import ModelConfig
from tensorfold.network.attention import Attention, Shared
from tensorfold.network.compressor import Compressor
from tensorfold.network.engram import Engram
from tensorfold.network.head import Head
from tensorfold.network.hyper import HyperConnection, Streams
from tensorfold.network.indexer import Indexer
from tensorfold.network.moe import Moe
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.state.caches import PAGE_TOKENS, Caches
from tests.support.compare import to_numpy
from tests.support.goldens import DATA, EXAMPLE, Trace
from tests.support.published import PublishedScores
from tests.support.sources import PartialSource

FOLDERS = {"tiny_calm": DATA / "tiny_calm", "heads": DATA / "heads", "trained": EXAMPLE}
Pair = tuple[mx.array | np.ndarray, np.ndarray]  # got and published, the latter float32, int32 or bfloat16 widened


def bf16_array(values: np.ndarray) -> mx.array:
    """Values that are bfloat16 already, for MLX."""
    return mx.array(np.ascontiguousarray(values, np.float32)).astype(mx.bfloat16)


@dataclass(frozen=True)
class Attended:
    """One layer's attention over all rows of a trace; `call` holds turned queries, the columns attended to, and what it
    gave: before it was turned back, or after where that is one kernel (`Sublayers.turned_back`)."""

    out: mx.array
    window: mx.array
    selection: mx.array | None
    call: tuple[mx.array, list[Columns], mx.array] | None


class Sublayers:
    """The sublayers of a golden checkpoint on one backend; the whole trace is one round of one slot from position 0."""

    def __init__(self, name: str, backend: Callable[[ModelConfig], Any] = PublishedScores):
        self.name, folder = name, FOLDERS[name]
        self.config = ModelConfig.from_folder(folder)
        self.source = PartialSource.folder(folder)
        self.trace = Trace.load(name)
        self.backend: Backend = backend(self.config)
        # decodes packed rows and turns heads, which a backend of kernels need not do by itself
        self.reader = self.backend if isinstance(self.backend, OpsBackend) else OpsBackend(self.config)
        self.turned_back = self.reader is not self.backend
        self._calls: list[tuple[mx.array, list[Columns], mx.array]] = []
        if self.turned_back:
            whole = self.backend.attend_rotated

            def record_whole(q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
                self._calls.append((self.reader.rope(q, table), columns, whole(q, table, columns, sink)))
                return self._calls[-1][2]

            setattr(self.backend, "attend_rotated", record_whole)  # noqa: B010
        else:
            attend = self.reader.attend

            def record(q: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
                self._calls.append((q, columns, attend(q, columns, sink)))
                return self._calls[-1][2]

            setattr(self.backend, "attend", record)  # noqa: B010

    def has(self, layer: int, quantity: str) -> bool:
        return f"layers.{layer}.{quantity}" in self.trace

    def inputs(self, layer: int, quantity: str = "attn_in") -> mx.array:
        return self.trace.mx(f"layers.{layer}.{quantity}")

    @cached_property
    def pages(self) -> int:
        return -(-len(self.trace.ids) // PAGE_TOKENS)

    @cached_property
    def caches(self) -> Caches:
        return Caches(self.config, 1, self.pages)

    @cached_property
    def plan(self) -> Plan:
        segment = Segment(0, 0, self.trace.ids.tolist(), range(self.pages), [])
        return Planner(self.config).build([segment], 1, self.pages)

    # ---- hyper-connections

    def glue(self, layer: int) -> dict[str, Pair]:
        """attn_in, ffn_in, x_out, pre_out of a layer whose sublayers answer as published."""
        t, p = self.trace, f"layers.{layer}"
        embed = self.source.raw("embed.weight") if "embed.weight" in self.source else None
        s = Streams(bf16_array(t.stream_in(layer, embed)), mx.array(np.ascontiguousarray(t.pre_in(layer))))
        seen = {}
        for kind in ("attn", "ffn"):

            def answer(h: mx.array, _: object, kind: str = kind) -> tuple[mx.array, None]:
                seen[kind] = h
                return self.inputs(layer, f"{kind}_out"), None

            s, _ = HyperConnection(self.source, p, kind, self.backend)(s, answer, None)
        return {
            "attn_in": (seen["attn"], t.at(f"{p}.attn_in", t.rows)),
            "ffn_in": (seen["ffn"], t.q(layer, "ffn_in")),
            "x_out": (s.x, t.q(layer, "x_out")),
            "pre_out": (s.pre, t.q(layer, "pre_out")),
        }

    def engram(self, layer: int) -> Pair:
        """X after the Engram of published table rows; `heads` holds stream 0 and 32 of its elements alone."""
        p, rows = f"layers.{layer}", self.trace.q(layer, "engram_hash")[self.trace.rows]
        gathered = (mx.array(self.source.raw(f"{p}.engram.embed.{kind}")[rows]) for kind in ("weight", "scale"))
        got = Engram(self.source, p, self.backend)(bf16_array(self.trace.stream_before(layer)), *gathered)
        want = self.trace.q(layer, "engram_out")
        return (got[:, 0, :32], want[:, 0, :32]) if self.name == "heads" else (got, want)

    # ---- attention

    def latents(self, layer: int) -> Pair:
        part = self.plan.compressed[self.config.compress_ratios[layer]]
        compressor = Compressor(self.source, f"layers.{layer}", self.config.compress_ratios[layer], self.backend)
        x = self.inputs(layer)
        got = compressor.latents(x, compressor.pairs(x), part, self.caches.pairs.get(layer))
        return got[mx.array(self.trace.rows_of(f"layers.{layer}.latent"))], self.trace.q(layer, "latent")

    def stored(self, layer: int) -> dict[str, Pair]:
        """Compressed rows and index keys as the published caches hold them, from published latents."""
        ratio = self.config.compress_ratios[layer]
        compressor = Compressor(self.source, f"layers.{layer}", ratio, self.backend)
        rows = self.trace.rows_of(f"layers.{layer}.latent")
        table = Planner(self.config).rope.compressed(rows * ratio)
        packed = compressor.publish(self.inputs(layer, "latent"), table)
        out: dict[str, Pair] = {}
        for kind, name, got in zip((RowKind.COMPRESSED, RowKind.KEY), ("compress_kv_cache", "indexer.k_cache"), packed):
            if (stored := f"cache.layers.{layer}.attn.{name}") in self.trace:
                out[name] = self.reader.unpack(got, kind), self.trace.at(stored, rows)
        return out

    @cached_property
    def attended(self) -> dict[int, Attended]:
        """Every layer of the trace that has its attention weights, in order, handing on what layers share."""
        shared, out = Shared({}), {}
        for role in self.config.roles:
            prefix = f"layers.{role.layer}"
            if self.has(role.layer, "attn_out"):
                attention = Attention(self.source, prefix, role, self.config, self.backend)
                x = self.inputs(role.layer)
                y, window = attention(x, self.backend.act_quant_fp8(x), self.plan, self.caches, shared)
                out[role.layer] = Attended(y, window, shared.selection if role.owns_index else None, self._calls[-1])
            elif self.has(role.layer, "topk_idxs"):
                out[role.layer] = self._select_only(role.layer, shared)
        return out

    def _select_only(self, layer: int, shared: Shared) -> Attended:
        """An index source whose cut holds its indexer alone."""
        b, p, role = self.backend, f"layers.{layer}.attn", self.config.roles[layer]
        x, table, part = self.inputs(layer), self.plan.compressed_table, self.plan.compressed[role.ratio]
        low = b.matvec_fp8(b.act_quant_fp8(x), b.load_fp8(self.source, [f"{p}.wq_a"]))
        low = b.act_quant_fp8(b.rms_norm(low, self.source.array(f"{p}.q_norm.weight")))
        flat = b.matvec_fp8(low, b.load_fp8(self.source, [f"{p}.indexer.wq_b"]))
        indexer = Indexer(self.source, f"layers.{layer}", role, self.config, b)
        assert role.kv_source is not None
        keys = Columns(self.caches.keys[role.kv_source], shared.new[role.kv_source].keys, part.places, RowKind.KEY)
        shared.selection, shared.candidates = indexer(
            indexer.queries(flat, table),
            indexer.head_weights(x),
            keys,
            self.plan,
            part.visible[: self.plan.rows],
            shared.candidates,
        )
        return Attended(x, x, shared.selection, None)

    def attention(self, layer: int) -> Pair:
        return self.attended[layer].out[mx.array(self.trace.rows)], self.trace.q(layer, "attn_out")

    def attend(self, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What one layer's attend was given and gave at the kept rows: queries, columns, which are used, outputs."""
        call = self.attended[layer].call
        assert call is not None
        rows = mx.array(self.trace.rows)
        picked = [c._replace(places=c.places[rows]) for c in call[1]]
        columns = np.concatenate([to_numpy(self.reader.unpack(self.reader.gather(c), c.kind)) for c in picked], 1)
        used = np.concatenate([np.array(c.places) >= 0 for c in picked], 1)
        return to_numpy(call[0][rows]), columns, used, to_numpy(call[2][rows])

    def selection(self, layer: int) -> Pair:
        """Selected rows, padded with -1 to the published width."""
        chosen = self.attended[layer].selection
        assert chosen is not None
        got, want = np.array(chosen)[self.trace.rows], self.trace.q(layer, "topk_idxs")
        return np.pad(got, ((0, 0), (0, want.shape[1] - got.shape[1])), constant_values=-1), want

    def selected_as_published(self, layer: int) -> np.ndarray:
        """For each kept row, whether the rows that the layer attends to are those that the published code selected."""
        source = self.config.roles[layer].index_source
        if source is None:
            return np.ones(len(self.trace.rows), bool)
        return np.all(np.equal(*self.selection(source)), -1)

    def window(self, layer: int) -> Pair:
        """The last W stored window rows, by ring slot."""
        width, at = self.config.sliding_window, np.arange(len(self.trace.ids))[-self.config.sliding_window :]
        rows = self.reader.unpack(self.attended[layer].window[-width:], RowKind.WINDOW)
        return rows, self.trace[f"cache.layers.{layer}.attn.window_kv_cache"][at % width]

    # ---- experts, taps, head

    def experts(self, layer: int, x: np.ndarray) -> mx.array:
        """The MoE of a layer on rows of the caller's."""
        c = self.config
        moe = Moe(self.source, f"layers.{layer}", c, self.backend, c.n_routed_experts, c.num_experts_per_tok)
        return self._join(moe, bf16_array(x))

    def _join(self, moe: Moe, x: mx.array) -> mx.array:
        return self.backend.joined(moe(x, self.backend.act_quant_fp8(x)))

    def moe(self, layer: int) -> dict[str, Pair]:
        """Routing by ascending id, its weights in that order, and ffn_out."""
        c, t = self.config, self.trace
        moe = Moe(self.source, f"layers.{layer}", c, self.backend, c.n_routed_experts, c.num_experts_per_tok)
        x = self.inputs(layer, "ffn_in")
        ids, weights = moe.route(x)
        order = np.argsort(t.q(layer, "gate_idx"), 1)
        published = (np.take_along_axis(t.q(layer, n), order, 1) for n in ("gate_idx", "gate_w"))
        return dict(zip(("ids", "weights"), zip((ids, weights), published))) | {
            "ffn_out": (self._join(moe, x), t.q(layer, "ffn_out"))
        }

    def tap(self, layer: int) -> Pair:
        k, d = self.config.dspark_target_layer_ids.index(layer), self.config.hidden_size
        want = self.trace.at("main_hidden", self.trace.rows)[:, k * d : (k + 1) * d]
        return self.backend.hc_mean(bf16_array(self.trace.stream_in(layer))), want

    def logits(self) -> Pair:
        last = self.config.num_hidden_layers - 1
        x, pre = self.inputs(last, "x_out"), self.inputs(last, "pre_out")
        return Head(self.source, self.backend)(x, pre), self.trace["logits"]
