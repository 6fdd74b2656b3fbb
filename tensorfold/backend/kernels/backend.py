"""KernelBackend: the Backend on registered kernels, the same text on metal, cuda and host; knows no layers, no slots.

A result is float32 or bfloat16 as the kernels state; no operation here computes by mx arithmetic what a
kernel states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold import kernels
from tensorfold.backend.base import Apart, Backend, Columns, Draw, Entered, Output, WeightSource
from tensorfold.backend.kernels.pool import GatheredRoom
from tensorfold.backend.kernels.weights import Dense, Fp8Matrices, Gathered, load_dense, load_experts, load_fp8
from tensorfold.backend.layout import RowKind
from tensorfold.backend.pool import Shapes
from tensorfold.backend.rows import row_wise
from tensorfold.config import ModelConfig
from tensorfold.kernels.attend import attend
from tensorfold.kernels.candidate_blocks import candidate_blocks
from tensorfold.kernels.index_scores import index_scores
from tensorfold.kernels.launch import launcher
from tensorfold.kernels.matvec import matvec_bf16, matvec_fp8
from tensorfold.kernels.rope_pack import norm_rope_pack
from tensorfold.kernels.select import select
from tensorfold.small import constant


class KernelBackend(Backend[Fp8Matrices, Dense, Gathered]):
    """See `backend.base.Backend` for what each operation is, and each kernel's source for its order of sums.

    name: "metal", "cuda" or "host". Raises BackendError where the machine cannot run it.
    """

    trial_rows, trial_counts = 6, (1,)  # more shapes would be more kernels to compile at load

    def __init__(self, config: ModelConfig, name: str, by_row: bool = False):
        launcher(name)
        self.config, self.name, self.by_row = config, name, by_row
        self.traceable = name != "host"  # the host runs each launch at once
        self._eps, self._hc_eps = constant(np.float32, config.rms_norm_eps), constant(np.float32, config.hc_eps)
        self._limit = constant(np.float32, config.swiglu_limit)
        self._scale = constant(np.float32, config.routed_scaling_factor)
        self._root = constant(np.float32, config.hidden_size**-0.5)

    def _run(self, kernel: str, *arrays: mx.array, **options: Any) -> list[mx.array]:
        return kernels.get(kernel)(*arrays, backend=self.name, **options)

    def _one(self, kernel: str, *arrays: mx.array, **options: Any) -> mx.array:
        return self._run(kernel, *arrays, **options)[0]

    @property
    def draw(self) -> Draw:
        return self.pick_rows

    @row_wise("logits", "temperature", "seed", "position")
    def pick_rows(
        self, logits: mx.array, temperature: mx.array, seed: mx.array, position: mx.array
    ) -> tuple[mx.array, mx.array]:
        ids, finite = self._run("pick", self._one("pick_parts", logits, temperature, seed, position))
        return ids, finite

    # weights
    def load_fp8(self, source: WeightSource, names: Sequence[str], groups: int = 1) -> Fp8Matrices:
        return load_fp8(source, names)

    def load_matrix(self, source: WeightSource, name: str) -> Dense:
        return load_dense(source, name)

    def rows_of(self, weight: Fp8Matrices, start: int, rows: int) -> Fp8Matrices:
        return weight.part(start, rows)

    def load_experts(self, source: WeightSource, prefix: str, count: int) -> Gathered:
        return load_experts(source, prefix, count)

    def expert_room(self, shapes: Shapes, slots: int) -> GatheredRoom:
        return GatheredRoom(shapes, slots)

    # glue
    @row_wise("ids")
    def embed(self, ids: mx.array, table: mx.array) -> mx.array:
        return self._one("embed", ids, table)

    @row_wise("x")
    def rms_norm(self, x: mx.array, weight: mx.array) -> mx.array:
        return self._one("rms_norm", x, weight, self._eps)

    @row_wise("x")
    def act_quant_fp8(self, x: mx.array) -> mx.array:
        return self._one("act_quant_fp8_planes", x)

    # matrices
    @row_wise("x")
    def matvecs_fp8(self, x: mx.array, weight: Fp8Matrices) -> list[mx.array]:
        return matvec_fp8(weight.parts, x, width=weight.width, backend=self.name)

    @row_wise("x")
    def grouped_quantised(self, x: mx.array, weight: Fp8Matrices) -> mx.array:
        return self._one("matvec_fp8_quantised", *weight.parts[0], x, width=weight.width)

    @row_wise("x")
    def matvec_bf16(self, x: mx.array, weight: Dense) -> mx.array:
        return matvec_bf16(weight.matrix, x, out="bfloat16", width=weight.width, backend=self.name)

    @row_wise("x")
    def matvec_f32(self, x: mx.array, weight: Dense) -> mx.array:
        return matvec_bf16(weight.matrix, x, out="float32", width=weight.width, backend=self.name)

    # hyper-connections and Engram
    @row_wise("x", "pre", "ahead")
    def hc_enter(
        self, x: mx.array, pre: mx.array, fn: mx.array, base: mx.array, scale: mx.array, norm: mx.array,
        ahead: mx.array | None,
    ) -> Entered:  # fmt: skip
        part, width = self._one("hc_dots", x, fn) if ahead is None else ahead, x.shape[1] * x.shape[2]
        arrays = part, base, scale, self._eps, self._hc_eps, x, pre, norm
        own, post, comb, h, q = self._run("hc_enter", *arrays, width=width, iterations=self.config.hc_sinkhorn_iters)
        return Entered(h, q, own, post, comb)

    @row_wise("y", "x", "post", "comb")
    def hc_leave(
        self, y: Output, x: mx.array, post: mx.array, comb: mx.array, following: mx.array | None
    ) -> tuple[mx.array, mx.array | None]:
        name = "moe_leave" if isinstance(y, Apart) else "hc_post"
        arrays = *(y if isinstance(y, Apart) else (y,)), x, post, comb
        if following is None:
            return self._one(name, *arrays), None
        out, part = self._run(f"{name}_dots", *arrays, following)
        return out, part

    @row_wise("x", "pre")
    def hc_collapse(self, x: mx.array, pre: mx.array) -> mx.array:
        return self._one("hc_collapse_norm", x, pre, x[0, 0], self._eps, norm=False)

    @row_wise("x", "pre")
    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array:
        return self._one("hc_collapse_norm", x, pre, weight, self._eps)

    @row_wise("x")
    def hc_mean(self, x: mx.array) -> mx.array:
        return self._one("hc_mean", x)

    @row_wise("codes", "scales")
    def engram_rows(self, codes: mx.array, scales: mx.array) -> mx.array:
        return self._one("engram_rows", codes, scales)

    @row_wise("x", "kv")
    def engram_inject(self, x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array) -> mx.array:
        return self._one("engram_inject", x, kv, q_weight, k_weight, self._eps, self._root)

    # attention
    @row_wise("low", "kv", "table")
    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[mx.array, mx.array]:
        q, row = self._run("attn_norms", low, q_norm, kv, kv_norm, table, self._eps)
        return q, row

    @row_wise("x", "table")
    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array:
        return norm_rope_pack(x, norm, table, self._eps, kind=kind.name.lower(), backend=self.name)

    @row_wise("partner")
    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array:
        return self._one("compress_pair", opened, own, partner)

    @row_wise("queries", "weights", "owner")
    def index_scores(
        self, queries: mx.array, weights: mx.array, keys: Columns, counts: Sequence[int], owner: mx.array
    ) -> mx.array:
        return index_scores(queries, weights, keys.cache, keys.new, keys.places, owner, backend=self.name)

    @row_wise("scores", "visible")
    def candidate_blocks(self, scores: mx.array, visible: mx.array) -> mx.array:
        c = self.config
        return candidate_blocks(scores, visible, c.candidate_block_size, c.candidate_topk_blocks, backend=self.name)

    @row_wise("scores", "visible", "candidates")
    def select(self, scores: mx.array, visible: mx.array, candidates: mx.array | None, topk: int) -> mx.array:
        block = 0 if candidates is None else self.config.candidate_block_size
        return select(scores, visible, topk, candidates, block, backend=self.name)

    @row_wise("q", "table", "columns")
    def attend_rotated(self, q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
        return attend(q, table, sink, *[(c.cache, c.new, c.places) for c in columns], backend=self.name)

    # experts
    @row_wise("logits")
    def route(self, logits: mx.array, bias: mx.array, k: int) -> tuple[mx.array, mx.array]:
        ids, weights = self._run("route", logits, bias, self._scale, k=k, normalise=self.config.norm_topk_prob)
        return ids, weights

    @row_wise("x", "ids", "weights")
    def moe(
        self, x: mx.array, ids: mx.array, weights: mx.array, experts: Gathered, shared_in: Fp8Matrices,
        shared_out: Fp8Matrices,
    ) -> Apart:  # fmt: skip
        e, (inner, outer) = experts, experts.sizes
        (w1, w3), (w2,) = shared_in.parts, shared_out.parts
        wide = {"width": e.width, "shared_width": shared_in.width}
        gate, up, *shared = self._run("moe_up", x, ids, e.shard, e.up, e.origin, *w1, *w3, n=inner, **wide)
        hidden, shared_hidden = self._run("swiglu_round", gate, up, weights, *shared, self._limit)
        wide["shared_width"] = shared_out.width
        last = self._run("moe_down", hidden, ids, e.shard, e.down, e.origin, *w2, shared_hidden, n=outer, **wide)
        return Apart(*last)

    @row_wise("x", "ids", "weights")
    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Gathered) -> mx.array:
        e, (inner, outer) = experts, experts.sizes
        gate, up = self._run("experts_up", x, ids, e.shard, e.up, e.origin, n=inner, width=e.width)
        hidden = self._one("act_quant_fp8_round", self._one("swiglu_weighted", gate, up, weights, self._limit))
        return self._one("experts_down", hidden, ids, e.shard, e.down, e.origin, n=outer, width=e.width)

    @row_wise("gate", "up")
    def swiglu(self, gate: mx.array, up: mx.array) -> mx.array:
        return self._one("swiglu_weighted", gate, up, self._limit, self._limit, weighted=False)

    def join_experts(self, routed: mx.array, shared: mx.array) -> Apart:
        return Apart(routed, shared)

    def joined(self, y: Output) -> mx.array:
        return self._one("moe_join", *y) if isinstance(y, Apart) else y
