"""KernelBackend: the Backend on registered kernels, the same text on metal, cuda and host; knows no layers, no slots.

A result is float32 or bfloat16 as the kernels state; no operation here computes by mx arithmetic what a
kernel states.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Apart, Backend, Columns, Draw, Entered, Output, WeightSource
from tensorfold.backend.kernels.pool import GatheredRoom
from tensorfold.backend.kernels.weights import Dense, Fp8Matrices, Gathered, load_dense, load_experts, load_fp8
from tensorfold.backend.layout import RowKind
from tensorfold.backend.pool import Shapes
from tensorfold.backend.rows import row_wise
from tensorfold.config import ModelConfig
from tensorfold.kernels.act_quant import act_quant_fp8_planes, act_quant_fp8_round
from tensorfold.kernels.attend import attend
from tensorfold.kernels.attn_norms import attn_norms
from tensorfold.kernels.candidate_blocks import candidate_blocks
from tensorfold.kernels.compress_pair import compress_pair
from tensorfold.kernels.embed import embed
from tensorfold.kernels.engram_inject import engram_inject
from tensorfold.kernels.engram_rows import engram_rows
from tensorfold.kernels.experts import experts_down, experts_up
from tensorfold.kernels.hc_collapse_norm import hc_collapse_norm
from tensorfold.kernels.hc_enter import hc_enter
from tensorfold.kernels.hc_mean import hc_mean
from tensorfold.kernels.hc_mix import hc_dots
from tensorfold.kernels.hc_post import hc_post, hc_post_dots
from tensorfold.kernels.index_scores import index_scores
from tensorfold.kernels.launch import launcher
from tensorfold.kernels.matvec import matvec_bf16, matvec_fp8, matvec_fp8_quantised
from tensorfold.kernels.moe_join import moe_join
from tensorfold.kernels.moe_leave import moe_leave, moe_leave_dots
from tensorfold.kernels.moe_matrices import moe_down, moe_up
from tensorfold.kernels.pick import pick, pick_parts
from tensorfold.kernels.rms_norm import rms_norm
from tensorfold.kernels.rope_pack import norm_rope_pack
from tensorfold.kernels.route import route
from tensorfold.kernels.select import select
from tensorfold.kernels.swiglu_round import swiglu_round
from tensorfold.kernels.swiglu_weighted import swiglu_weighted
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

    @property
    def draw(self) -> Draw:
        return self.pick_rows

    @row_wise("logits", "temperature", "seed", "position")
    def pick_rows(
        self, logits: mx.array, temperature: mx.array, seed: mx.array, position: mx.array
    ) -> tuple[mx.array, mx.array]:
        return pick(pick_parts(logits, temperature, seed, position, backend=self.name), backend=self.name)

    # weights
    def load_fp8(self, source: WeightSource, names: Sequence[str], groups: int = 1) -> Fp8Matrices:
        return load_fp8(source, names)

    def load_matrix(self, source: WeightSource, name: str) -> Dense:
        return load_dense(source, name)

    def rows_of(self, weight: Fp8Matrices, start: int, rows: int) -> Fp8Matrices:
        return weight.part(start, rows)

    def load_experts(self, source: WeightSource, prefix: str, count: int) -> Gathered:
        return load_experts(source, prefix, count)

    def expert_room(self, shapes: Shapes, entries: int) -> GatheredRoom:
        return GatheredRoom(shapes, entries)

    # glue
    @row_wise("ids")
    def embed(self, ids: mx.array, table: mx.array) -> mx.array:
        return embed(ids, table, backend=self.name)

    @row_wise("x")
    def rms_norm(self, x: mx.array, weight: mx.array) -> mx.array:
        return rms_norm(x, weight, self._eps, backend=self.name)

    @row_wise("x")
    def act_quant_fp8(self, x: mx.array) -> mx.array:
        return act_quant_fp8_planes(x, backend=self.name)

    # matrices
    @row_wise("x")
    def matvecs_fp8(self, x: mx.array, weight: Fp8Matrices) -> list[mx.array]:
        return matvec_fp8(weight.parts, x, width=weight.width, backend=self.name)

    @row_wise("x")
    def grouped_quantised(self, x: mx.array, weight: Fp8Matrices) -> mx.array:
        return matvec_fp8_quantised(*weight.parts[0], x, width=weight.width, backend=self.name)

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
        part = hc_dots(x, fn, backend=self.name) if ahead is None else ahead
        own, post, comb, h, q = hc_enter(
            part, base, scale, self._eps, self._hc_eps, x, pre, norm,
            width=x.shape[1] * x.shape[2], iterations=self.config.hc_sinkhorn_iters, backend=self.name,
        )  # fmt: skip
        return Entered(h, q, own, post, comb)

    @row_wise("y", "x", "post", "comb")
    def hc_leave(
        self, y: Output, x: mx.array, post: mx.array, comb: mx.array, following: mx.array | None
    ) -> tuple[mx.array, mx.array | None]:
        if isinstance(y, Apart):
            if following is None:
                return moe_leave(y.routed, y.shared, x, post, comb, backend=self.name), None
            return moe_leave_dots(y.routed, y.shared, x, post, comb, following, backend=self.name)
        if following is None:
            return hc_post(y, x, post, comb, backend=self.name), None
        return hc_post_dots(y, x, post, comb, following, backend=self.name)

    @row_wise("x", "pre")
    def hc_collapse(self, x: mx.array, pre: mx.array) -> mx.array:
        return hc_collapse_norm(x, pre, None, self._eps, backend=self.name)

    @row_wise("x", "pre")
    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array:
        return hc_collapse_norm(x, pre, weight, self._eps, backend=self.name)

    @row_wise("x")
    def hc_mean(self, x: mx.array) -> mx.array:
        return hc_mean(x, backend=self.name)

    @row_wise("codes", "scales")
    def engram_rows(self, codes: mx.array, scales: mx.array) -> mx.array:
        return engram_rows(codes, scales, backend=self.name)

    @row_wise("x", "kv")
    def engram_inject(self, x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array) -> mx.array:
        return engram_inject(x, kv, q_weight, k_weight, self._eps, self._root, backend=self.name)

    # attention
    @row_wise("low", "kv", "table")
    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[mx.array, mx.array]:
        return attn_norms(low, q_norm, kv, kv_norm, table, self._eps, backend=self.name)

    @row_wise("x", "table")
    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array:
        return norm_rope_pack(x, norm, table, self._eps, kind=kind.name.lower(), backend=self.name)

    @row_wise("partner")
    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array:
        return compress_pair(opened, own, partner, backend=self.name)

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
        return route(logits, bias, self._scale, k=k, normalise=self.config.norm_topk_prob, backend=self.name)

    @row_wise("x", "ids", "weights")
    def moe(
        self, x: mx.array, ids: mx.array, weights: mx.array, experts: Gathered, shared_in: Fp8Matrices,
        shared_out: Fp8Matrices,
    ) -> Apart:  # fmt: skip
        e, (inner, outer) = experts, experts.sizes
        (w1, w3), (w2,) = shared_in.parts, shared_out.parts
        gate, up, shared_gate, shared_up = moe_up(
            x, ids, e.shard, e.up, e.origin, *w1, *w3,
            n=inner, width=e.width, shared_width=shared_in.width, backend=self.name,
        )  # fmt: skip
        y, shared = swiglu_round(gate, up, weights, shared_gate, shared_up, self._limit, backend=self.name)
        y, shared = moe_down(
            y, ids, e.shard, e.down, e.origin, *w2, shared,
            n=outer, width=e.width, shared_width=shared_out.width, backend=self.name,
        )  # fmt: skip
        return Apart(y, shared)

    @row_wise("x", "ids", "weights")
    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Gathered) -> mx.array:
        e, (inner, outer) = experts, experts.sizes
        gate, up = experts_up(x, ids, e.shard, e.up, e.origin, n=inner, width=e.width, backend=self.name)
        y = swiglu_weighted(gate, up, weights, self._limit, backend=self.name)
        y = act_quant_fp8_round(y, backend=self.name)
        return experts_down(y, ids, e.shard, e.down, e.origin, n=outer, width=e.width, backend=self.name)

    @row_wise("gate", "up")
    def swiglu(self, gate: mx.array, up: mx.array) -> mx.array:
        return swiglu_weighted(gate, up, None, self._limit, backend=self.name)

    def join_experts(self, routed: mx.array, shared: mx.array) -> Apart:
        return Apart(routed, shared)

    def joined(self, y: Output) -> mx.array:
        return moe_join(y.routed, y.shared, backend=self.name) if isinstance(y, Apart) else y
