"""OpsBackend: the Backend in plain mx operations, anywhere MLX runs;
knows the config's constants, no layers and no slots.

Rows of a round share a launch where this device's operations are row-invariant (`rows.invariant` finds out at load);
elsewhere
every operation runs row by row with identical shapes, through the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx

from tensorfold.backend.base import Apart, Backend, Columns, Entered, Output, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import attention, glue, linear, moe, quant
from tensorfold.backend.ops.linear import Fp4Experts, Fp8Weight
from tensorfold.backend.ops.pool import Fp4Room
from tensorfold.backend.pool import Shapes
from tensorfold.backend.rows import row_wise
from tensorfold.config import ModelConfig


class OpsBackend(Backend[Fp8Weight, mx.array, Fp4Experts]):
    """See `backend.base.Backend` for what each operation is; shapes and roundings are stated there and beside each
    formula.

    On a GPU, runs of element-wise work are fused by mx.compile. On a CPU that would call a C++ compiler for each of a
    hundred loops, for minutes, and the bits would be those of whichever compiler is there.
    """

    name = "ops"
    trial_rows, trial_counts = 66, (1, 2, 3, 5, 6, 8, 16, 33)

    def __init__(self, config: ModelConfig, by_row: bool = False):
        self.config, self.by_row = config, by_row
        self._fuses = mx.default_device() == mx.Device(mx.gpu)
        c, eps, fuse = config, config.rms_norm_eps, self._fuse
        self._matrices = linear.Matrices(self._fuses)
        self._rms_norm = fuse(partial(glue.rms_norm, eps=eps))
        self._rope = {inverse: fuse(partial(glue.rope, inverse=inverse)) for inverse in (False, True)}
        self._round_trip = fuse(quant.round_trip_fp8)
        self._pack = {kind: fuse(partial(quant.pack, kind=kind)) for kind in RowKind}
        self._hc_split = fuse(partial(glue.hc_split, n=c.hc_mult, iterations=c.hc_sinkhorn_iters, eps=c.hc_eps))
        self._inverse_rms = fuse(partial(glue.inverse_rms, eps=eps))
        self._collapse_norm = fuse(partial(glue.hc_collapse_norm, eps=eps))
        self._hc_collapse, self._hc_post, self._hc_mean = fuse(glue.hc_collapse), fuse(glue.hc_post), fuse(glue.hc_mean)
        self._engram_rows, self._engram_inject = fuse(quant.unpack_rows), fuse(partial(glue.engram_inject, eps=eps))
        self._compress_pair, self._score = fuse(attention.compress_pair), fuse(attention.index_scores)
        self._attend: dict[tuple[RowKind, ...], Callable[..., mx.array]] = {}
        self._route: dict[int, Callable[..., tuple[mx.array, mx.array]]] = {}
        self._swiglu, self._join = fuse(partial(moe.swiglu, limit=c.swiglu_limit)), fuse(moe.join)

    def _fuse(self, function: Callable) -> Callable:
        return mx.compile(function) if self._fuses else function

    # weights
    def load_fp8(self, source: WeightSource, names: Sequence[str], groups: int = 1) -> Fp8Weight:
        return linear.load_fp8(source, tuple(names), groups)

    def load_matrix(self, source: WeightSource, name: str) -> mx.array:
        return source.array(name)

    def rows_of(self, weight: Fp8Weight, start: int, rows: int) -> Fp8Weight:
        return weight.part(start, rows)

    def load_experts(self, source: WeightSource, prefix: str, count: int) -> Fp4Experts:
        return linear.load_experts(source, prefix, count)

    def expert_room(self, shapes: Shapes, entries: int) -> Fp4Room:
        return Fp4Room(shapes, entries)

    # glue
    def embed(self, ids: mx.array, table: mx.array) -> mx.array:
        return table[ids]

    @row_wise("x")
    def rms_norm(self, x: mx.array, weight: mx.array) -> mx.array:
        return self._rms_norm(x, weight)

    @row_wise("x", "table")
    def rope(self, x: mx.array, table: mx.array, inverse: bool = False) -> mx.array:
        return self._rope[inverse](x, table)

    @row_wise("x")
    def act_quant_fp8(self, x: mx.array) -> mx.array:
        return self._round_trip(x)

    @row_wise("x")
    def pack(self, x: mx.array, kind: RowKind) -> mx.array:
        return self._pack[kind](x)

    def unpack(self, rows: mx.array, kind: RowKind) -> mx.array:
        return quant.unpack(rows, kind)

    # matrices
    @row_wise("x")
    def matvec_fp8(self, x: mx.array, weight: Fp8Weight) -> mx.array:
        return self._matrices.fp8(x, weight)

    def matvecs_fp8(self, x: mx.array, weight: Fp8Weight) -> list[mx.array]:
        return list(mx.split(self.matvec_fp8(x, weight), list(weight.ends), -1))

    def grouped_quantised(self, x: mx.array, weight: Fp8Weight) -> mx.array:
        return self.act_quant_fp8(self.matvec_fp8(x, weight))  # a plain bf16 input and a quantised one look alike here

    @row_wise("x")
    def matvec_bf16(self, x: mx.array, weight: mx.array) -> mx.array:
        return self._matrices.bf16(x, weight)

    @row_wise("x")
    def matvec_f32(self, x: mx.array, weight: mx.array) -> mx.array:
        return self._matrices.f32(x, weight)

    # hyper-connections and Engram
    def hc_enter(
        self, x: mx.array, pre: mx.array, fn: mx.array, base: mx.array, scale: mx.array, norm: mx.array,
        ahead: mx.array | None,
    ) -> Entered:  # fmt: skip
        own, post, comb = self.hc_mix(x, fn, base, scale)
        hidden = self.hc_collapse_norm(x, pre, norm)
        return Entered(hidden, self.act_quant_fp8(hidden), own, post, comb)

    def hc_leave(
        self, y: Output, x: mx.array, post: mx.array, comb: mx.array, following: mx.array | None
    ) -> tuple[mx.array, None]:
        return self.hc_post(self.joined(y), x, post, comb), None

    @row_wise("x")
    def hc_mix(self, x: mx.array, fn: mx.array, base: mx.array, scale: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        flat = x.reshape(x.shape[0], -1).astype(mx.float32)
        return self._hc_split(self._matrices.f32(flat, fn), self._inverse_rms(flat), base, scale)

    @row_wise("x", "pre")
    def hc_collapse(self, x: mx.array, pre: mx.array) -> mx.array:
        return self._hc_collapse(x, pre)

    @row_wise("x", "pre")
    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array:
        return self._collapse_norm(x, pre, weight)

    @row_wise("y", "x", "post", "comb")
    def hc_post(self, y: mx.array, x: mx.array, post: mx.array, comb: mx.array) -> mx.array:
        return self._hc_post(y, x, post, comb)

    @row_wise("x")
    def hc_mean(self, x: mx.array) -> mx.array:
        return self._hc_mean(x)

    @row_wise("codes", "scales")
    def engram_rows(self, codes: mx.array, scales: mx.array) -> mx.array:
        return self._engram_rows(codes, scales)

    @row_wise("x", "kv")
    def engram_inject(self, x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array) -> mx.array:
        return self._engram_inject(x, kv, q_weight, k_weight)

    # attention
    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[mx.array, mx.array]:
        q = self.act_quant_fp8(self.rms_norm(low, q_norm))
        return q, self.norm_rope_pack(kv, kv_norm, table, RowKind.WINDOW)

    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array:
        return self.pack(self.rope(x if norm is None else self.rms_norm(x, norm), table), kind)

    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array:
        group = mx.concatenate([opened, own])[partner]
        return self.compress_pair(group[:, :, 0], group[:, :, 1])

    def attend_rotated(self, q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
        return self.rope(self.attend(self.rope(q, table), columns, sink), table, inverse=True)

    @row_wise("values", "gates")
    def compress_pair(self, values: mx.array, gates: mx.array) -> mx.array:
        return self._compress_pair(values, gates)

    def index_scores(
        self, queries: mx.array, weights: mx.array, keys: Columns, counts: Sequence[int], owner: mx.array
    ) -> mx.array:
        parts, first = [], 0
        for i, count in enumerate(counts):
            own, rows = attention.gather(keys._replace(places=keys.places[i])), slice(first, first + count)
            parts.append(self.score_rows(queries[rows], weights[rows], own))
            first += count
        return mx.concatenate(parts)

    @row_wise("queries", "weights")
    def score_rows(self, queries: mx.array, weights: mx.array, keys: mx.array) -> mx.array:
        """Scores of rows against one slot's keys; the place where a test puts another rounding."""
        return self._score(queries, weights, keys)

    @row_wise("scores", "visible")
    def candidate_blocks(self, scores: mx.array, visible: mx.array) -> mx.array:
        c = self.config
        return attention.candidate_mask(scores, visible, c.candidate_block_size, c.candidate_topk_blocks)

    @row_wise("scores", "visible", "candidates")
    def select(self, scores: mx.array, visible: mx.array, candidates: mx.array | None, topk: int) -> mx.array:
        return attention.select(scores, visible, candidates, topk)

    @row_wise("q", "columns")
    def attend(self, q: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
        kinds = tuple(c.kind for c in columns)
        if kinds not in self._attend:
            self._attend[kinds] = self._fuse(partial(attention.attend_arrays, kinds))
        return self._attend[kinds](q, sink, *[a for c in columns for a in (c.cache, c.new, c.places)])

    # caches
    def gather(self, rows: Columns) -> mx.array:
        return attention.gather(rows)

    # experts
    @row_wise("logits")
    def route(self, logits: mx.array, bias: mx.array, k: int) -> tuple[mx.array, mx.array]:
        if k not in self._route:
            c = self.config
            route = partial(moe.route, k=k, scale=c.routed_scaling_factor, normalise=c.norm_topk_prob)
            self._route[k] = self._fuse(route)
        return self._route[k](logits, bias)

    @row_wise("x", "ids", "weights")
    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Fp4Experts) -> mx.array:
        m = self._matrices
        gate, up = mx.split(m.gathered_fp4(x[:, None], ids, experts.w13), 2, -1)
        hidden = self._round_trip(self._swiglu(gate, up, weights=weights[..., None]))
        return m.gathered_fp4(hidden, ids, experts.w2)

    @row_wise("gate", "up")
    def swiglu(self, gate: mx.array, up: mx.array) -> mx.array:
        return self._swiglu(gate, up)

    @row_wise("routed", "shared")
    def join_experts(self, routed: mx.array, shared: mx.array) -> mx.array:
        return self._join(routed, shared)

    def joined(self, y: Output) -> mx.array:
        return self.join_experts(*y) if isinstance(y, Apart) else y
