"""The Backend: every operation the network asks for, by name, shape and rounding; it knows no layers, slots or text.

R is the number of rows of a round, D the hidden size. Every bf16 result is rounded once from float32 and rows never
mix.
Quantised activations, prepared weights, candidates and a sublayer's output are opaque: the network only carries them
from one call to the next. What `hc_leave` computed ahead for a mix with the `following` weights goes to the next
`hc_enter`; None always serves. Composite operations stand for several with their roundings: `backend.composed` has them
as plain compositions, a backend may run one in fewer launches.
Packed cache rows are uint8, one row per position: codes first, then that row's scales (see `backend.layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from tensorfold.backend.layout import RowKind
from tensorfold.backend.pool import Room, Shapes

Quantised = Any
Weight = Any
Candidates = Any
Output = Any
Ahead = Any
# tokens int32 [R] and whether logits were finite bool [R], of logits float32 [R, V], temperature float32 [R], seed
# uint32 [R, 2] and position int32 [R]
Draw = Callable[[mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]


class Columns(NamedTuple):
    """Runs of packed rows by place: int32 [n, C], into the cache rows, then into this round's new rows; -1 is empty."""

    cache: mx.array
    new: mx.array
    places: mx.array
    kind: RowKind


class Entered(NamedTuple):
    """A sublayer's input bf16 [R, D], plain and quantised, and its mixes: pre, post float32 [R, n], comb [R, n, n]."""

    hidden: mx.array
    quantised: Quantised
    pre: mx.array
    post: mx.array
    comb: mx.array


class Segment(NamedTuple):
    """Neighbouring rows of a round that belong to one slot: the slot, its first row, how many,
    the first row's position."""

    slot: int
    first: int
    rows: int
    start: int


class WeightSource(Protocol):
    """Where weights come from: a Checkpoint, or a partial one in tests."""

    def raw(self, name: str) -> Any: ...
    def array(self, name: str) -> mx.array: ...
    def alignment(self, name: str) -> int: ...
    def mapped(self, names: Sequence[str]) -> tuple[mx.array, list[int]] | None: ...
    def __contains__(self, name: object) -> bool: ...


class Backend(Protocol):
    """Operations by the names of the kernels; see the model's specification for each formula."""

    name: str
    traceable: bool
    by_row: bool
    dependent: set[str] | None

    @property
    def draw(self) -> Draw | None: ...

    # weights, kept packed
    def load_fp8(self, source: WeightSource, names: Sequence[str], groups: int = 1) -> Weight: ...
    def load_bf16(self, source: WeightSource, names: Sequence[str]) -> Weight: ...
    def load_f32(self, source: WeightSource, name: str) -> Weight: ...
    def rows_of(self, weight: Weight, start: int, rows: int) -> Weight: ...
    def load_experts(self, source: WeightSource, prefix: str, count: int) -> Weight: ...
    def expert_room(self, shapes: Shapes, slots: int) -> Room: ...

    # glue
    def embed(self, ids: mx.array, table: mx.array) -> mx.array: ...
    def rms_norm(self, x: mx.array, weight: mx.array) -> mx.array: ...
    def act_quant_fp8(self, x: mx.array) -> Quantised: ...

    # matrices; one result a matrix of the weight
    def matvec_fp8(self, x: Quantised, weight: Weight) -> mx.array: ...
    def matvecs_fp8(self, x: Quantised, weight: Weight) -> list[mx.array]: ...
    def grouped_quantised(self, x: mx.array, weight: Weight) -> Quantised: ...
    def matvec_bf16(self, x: mx.array, weight: Weight) -> mx.array: ...
    def matvec_f32(self, x: mx.array, weight: Weight) -> mx.array: ...

    # hyper-connections and Engram
    def hc_enter(
        self, x: mx.array, pre: mx.array, fn: Weight, base: mx.array, scale: mx.array, norm: mx.array, ahead: Ahead
    ) -> Entered: ...
    def hc_leave(
        self, y: Output, x: mx.array, post: mx.array, comb: mx.array, following: Weight | None
    ) -> tuple[mx.array, Ahead]: ...
    def hc_collapse(self, x: mx.array, pre: mx.array) -> mx.array: ...
    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array: ...
    def hc_mean(self, x: mx.array) -> mx.array: ...
    def engram_rows(self, codes: mx.array, scales: mx.array) -> mx.array: ...
    def engram_inject(self, x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array) -> mx.array: ...

    # attention
    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[Quantised, mx.array]: ...
    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array: ...
    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array: ...
    def index_scores(
        self, queries: mx.array, weights: mx.array, keys: Columns, segments: Sequence[Segment], owner: mx.array
    ) -> mx.array: ...
    def candidate_blocks(self, scores: mx.array, visible: mx.array) -> Candidates: ...
    def select(self, scores: mx.array, visible: mx.array, candidates: Candidates | None, topk: int) -> mx.array: ...
    def attend_rotated(self, q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array: ...

    # caches
    def commit(self, cache: mx.array, places: mx.array, rows: mx.array) -> mx.array: ...

    # experts; `moe` is `join_experts` of `experts` and `shared`, in fewer launches where a backend can
    def route(self, logits: mx.array, bias: mx.array, k: int) -> tuple[mx.array, mx.array]: ...
    def moe(
        self, x: Quantised, ids: mx.array, weights: mx.array, experts: Weight, shared_in: Weight, shared_out: Weight
    ) -> Output: ...
    def experts(self, x: Quantised, ids: mx.array, weights: mx.array, experts: Weight) -> mx.array: ...
    def shared(self, x: Quantised, shared_in: Weight, shared_out: Weight) -> mx.array: ...
    def join_experts(self, routed: mx.array, shared: mx.array) -> Output: ...
    def take_rows(self, x: Quantised, rows: mx.array) -> Quantised: ...
    def joined(self, y: Output) -> mx.array: ...
