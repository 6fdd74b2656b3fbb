"""Composite operations as plain compositions of the small ones; a backend overrides what it runs in fewer launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from tensorfold.backend.base import Ahead, Columns, Entered, Output, Quantised, Weight
from tensorfold.backend.layout import RowKind


class Composed:
    """What a backend of small operations needs to be a whole `Backend`."""

    traceable = False  # whether a graph of its operations can be built once and replayed
    by_row = False
    draw: Any = None  # the pick of rows that ask for no more than a temperature, where there are kernels for it
    dependent: set[str] | None = None  # a set while operations are tried for bits that depend on other rows

    if TYPE_CHECKING:  # the small operations

        def __getattr__(self, name: str) -> Any: ...

    def matvec_fp8(self, x: Quantised, weight: Weight) -> mx.array:
        (y,) = self.matvecs_fp8(x, weight)
        return y

    def grouped_quantised(self, x: mx.array, weight: Weight) -> Quantised:
        return self.act_quant_fp8(self.matvec_grouped(x, weight))

    def hc_enter(
        self, x: mx.array, pre: mx.array, fn: Weight, base: mx.array, scale: mx.array, norm: mx.array, ahead: Ahead
    ) -> Entered:
        own, post, comb = self.hc_mix(x, fn, base, scale)
        hidden = self.hc_collapse_norm(x, pre, norm)
        return Entered(hidden, self.act_quant_fp8(hidden), own, post, comb)

    def hc_leave(
        self, y: mx.array, x: mx.array, post: mx.array, comb: mx.array, following: Weight | None
    ) -> tuple[mx.array, Ahead]:
        return self.hc_post(y, x, post, comb), None

    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[Quantised, mx.array]:
        q = self.act_quant_fp8(self.rms_norm(low, q_norm))
        return q, self.norm_rope_pack(kv, kv_norm, table, RowKind.WINDOW)

    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array:
        return self.pack(self.rope(x if norm is None else self.rms_norm(x, norm), table), kind)

    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array:
        group = mx.concatenate([opened, own])[partner]
        return self.compress_pair(group[:, :, 0], group[:, :, 1])

    def attend_rotated(self, q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
        return self.rope(self.attend(self.rope(q, table), columns, sink), table, inverse=True)

    def moe(
        self, x: Quantised, ids: mx.array, weights: mx.array, experts: Weight, shared_in: Weight, shared_out: Weight
    ) -> Output:
        return self.join_experts(self.experts(x, ids, weights, experts), self.shared(x, shared_in, shared_out))

    def shared(self, x: Quantised, shared_in: Weight, shared_out: Weight) -> mx.array:
        gate, up = self.matvecs_fp8(x, shared_in)
        return self.matvec_fp8(self.act_quant_fp8(self.swiglu(gate, up)), shared_out)

    def join_experts(self, routed: mx.array, shared: mx.array) -> Output:
        return self.moe_join(routed, shared)

    def take_rows(self, x: Quantised, rows: mx.array) -> Quantised:
        return x[rows]

    def commit(self, cache: mx.array, places: mx.array, rows: mx.array) -> mx.array:
        cache[places] = rows
        return cache

    def joined(self, y: mx.array) -> mx.array:
        return y
