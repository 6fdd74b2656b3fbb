"""The Backend: every operation the network asks for, by name, shape and rounding; it knows no layers, slots or text.

R is the number of rows of a round, D the hidden size. Every bf16 result is rounded once from float32 and rows never
mix. docs/model.md has the formulas.
A backend chooses how it holds weights: FP8 matrices, plain matrices and experts are types of its own, which the network
only carries from `load_*` to the operations. Quantised rows, candidates and what `hc_leave` computes ahead are arrays
that the network hands on unread. Composite operations stand for several with all their roundings, so that a backend may
run them in fewer launches.
Packed cache rows are uint8, one row per position: codes first, then that row's scales (see `backend.layout`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import mlx.core as mx
import numpy as np

from tensorfold.backend.layout import RowKind
from tensorfold.backend.pool import Room, Shapes

Fp8 = TypeVar("Fp8")  # one to three FP8 matrices that share an input
Matrix = TypeVar("Matrix")  # a bf16 or float32 matrix
Experts = TypeVar("Experts")  # the routed experts of a layer

Quantised = mx.array  # rows that an FP8 or FP4 product takes; their first axis is rows
Candidates = mx.array  # the blocks of every row from which later index sources may select
# tokens int32 [R] and whether logits were finite bool [R], of logits float32 [R, V], temperature float32 [R], seed
# uint32 [R, 2] and position int32 [R]
Draw = Callable[[mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]


class Apart(NamedTuple):
    """A MoE sublayer's output before its sum: routed bf16 [R, k, D] in ascending expert id and shared bf16 [R, D]."""

    routed: mx.array
    shared: mx.array


Output = mx.array | Apart  # what a sublayer gives to `hc_leave`: bf16 [R, D], or its parts


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


class WeightSource(Protocol):
    """Where weights come from: a Checkpoint, or a partial one in tests."""

    def raw(self, name: str) -> np.ndarray[Any, Any]: ...
    def array(self, name: str) -> mx.array: ...
    def alignment(self, name: str) -> int: ...
    def mapped(self, names: Sequence[str]) -> tuple[mx.array, list[int]] | None: ...
    def __contains__(self, name: object) -> bool: ...


class Backend(ABC, Generic[Fp8, Matrix, Experts]):
    """What a backend does. Operations that are not abstract are compositions of the others.

    traceable: whether a graph of its operations can be built once and replayed. by_row: every launch runs one row.
    dependent: a set while operations are tried for bits that depend on other rows, in launches of up to `trial_rows`
    rows, against launches of each of `trial_counts`.
    """

    name: str
    traceable = False
    by_row = False
    dependent: set[str] | None = None
    trial_rows: ClassVar[int]
    trial_counts: ClassVar[tuple[int, ...]]

    @property
    def draw(self) -> Draw | None:
        """The pick of rows that ask for no more than a temperature, where the backend has one of its own."""
        return None

    # weights, kept packed
    @abstractmethod
    def load_fp8(self, source: WeightSource, names: Sequence[str], groups: int = 1) -> Fp8: ...
    @abstractmethod
    def load_matrix(self, source: WeightSource, name: str) -> Matrix: ...
    @abstractmethod
    def load_experts(self, source: WeightSource, prefix: str, count: int) -> Experts: ...
    @abstractmethod
    def expert_room(self, shapes: Shapes, entries: int) -> Room[Experts]: ...
    @abstractmethod
    def rows_of(self, weight: Fp8, start: int, rows: int) -> Fp8: ...

    # glue
    @abstractmethod
    def embed(self, ids: mx.array, table: mx.array) -> mx.array: ...
    @abstractmethod
    def rms_norm(self, x: mx.array, weight: mx.array) -> mx.array: ...
    @abstractmethod
    def act_quant_fp8(self, x: mx.array) -> Quantised: ...

    # matrices; one result a matrix of the weight
    @abstractmethod
    def matvecs_fp8(self, x: Quantised, weight: Fp8) -> list[mx.array]: ...
    @abstractmethod
    def grouped_quantised(self, x: mx.array, weight: Fp8) -> Quantised: ...
    @abstractmethod
    def matvec_bf16(self, x: mx.array, weight: Matrix) -> mx.array: ...
    @abstractmethod
    def matvec_f32(self, x: mx.array, weight: Matrix) -> mx.array: ...

    def matvec_fp8(self, x: Quantised, weight: Fp8) -> mx.array:
        (y,) = self.matvecs_fp8(x, weight)
        return y

    # hyper-connections and Engram; `ahead` is what the last `hc_leave` computed for this mix, None always serves
    @abstractmethod
    def hc_enter(
        self, x: mx.array, pre: mx.array, fn: mx.array, base: mx.array, scale: mx.array, norm: mx.array,
        ahead: mx.array | None,
    ) -> Entered: ...  # fmt: skip
    @abstractmethod
    def hc_leave(
        self, y: Output, x: mx.array, post: mx.array, comb: mx.array, following: mx.array | None
    ) -> tuple[mx.array, mx.array | None]: ...
    @abstractmethod
    def hc_collapse(self, x: mx.array, pre: mx.array) -> mx.array: ...
    @abstractmethod
    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array: ...
    @abstractmethod
    def hc_mean(self, x: mx.array) -> mx.array: ...
    @abstractmethod
    def engram_rows(self, codes: mx.array, scales: mx.array) -> mx.array: ...
    @abstractmethod
    def engram_inject(self, x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array) -> mx.array: ...

    # attention
    @abstractmethod
    def attn_norms(
        self, low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array
    ) -> tuple[Quantised, mx.array]: ...
    @abstractmethod
    def norm_rope_pack(self, x: mx.array, norm: mx.array | None, table: mx.array, kind: RowKind) -> mx.array: ...
    @abstractmethod
    def compress_groups(self, opened: mx.array, own: mx.array, partner: mx.array) -> mx.array: ...
    @abstractmethod
    def index_scores(
        self, queries: mx.array, weights: mx.array, keys: Columns, counts: Sequence[int], owner: mx.array
    ) -> mx.array:
        """float32 [R, C]; counts: neighbouring rows that share a run of keys, in order; owner int32 [R]: whose."""
    @abstractmethod
    def candidate_blocks(self, scores: mx.array, visible: mx.array) -> Candidates: ...
    @abstractmethod
    def select(self, scores: mx.array, visible: mx.array, candidates: Candidates | None, topk: int) -> mx.array: ...
    @abstractmethod
    def attend_rotated(self, q: mx.array, table: mx.array, columns: list[Columns], sink: mx.array) -> mx.array: ...

    # experts
    @abstractmethod
    def route(self, logits: mx.array, bias: mx.array, k: int) -> tuple[mx.array, mx.array]: ...
    @abstractmethod
    def experts(self, x: Quantised, ids: mx.array, weights: mx.array, experts: Experts) -> mx.array: ...
    @abstractmethod
    def swiglu(self, gate: mx.array, up: mx.array) -> mx.array: ...
    @abstractmethod
    def join_experts(self, routed: mx.array, shared: mx.array) -> Output: ...
    @abstractmethod
    def joined(self, y: Output) -> mx.array: ...

    def moe(
        self, x: Quantised, ids: mx.array, weights: mx.array, experts: Experts, shared_in: Fp8, shared_out: Fp8
    ) -> Output:
        return self.join_experts(self.experts(x, ids, weights, experts), self.shared(x, shared_in, shared_out))

    def shared(self, x: Quantised, shared_in: Fp8, shared_out: Fp8) -> mx.array:
        gate, up = self.matvecs_fp8(x, shared_in)
        return self.matvec_fp8(self.act_quant_fp8(self.swiglu(gate, up)), shared_out)

    # caches
    def commit(self, cache: mx.array, places: mx.array, rows: mx.array) -> mx.array:
        cache[places] = rows
        return cache
