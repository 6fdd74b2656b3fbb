"""Weights as the kernels read them: packed as in the file, mapped where the source can, copied elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import WeightSource
from tensorfold.small import constant

ROW = 16384  # a dimension of an MLX array is limited to 2^31, so many bytes are rows of this many
FEWEST = 8  # Metal hands a kernel fewer elements than this in another address space


@dataclass(frozen=True)
class Fp8Matrices:
    """One to three matrices that share an input: (codes uint8 [N, K], UE8M0 bytes [ceil(N / 32), K / 32]) of each;
    `width` is the load width in bytes that all their addresses allow."""

    parts: tuple[tuple[mx.array, mx.array], ...]
    width: int

    def part(self, start: int, rows: int) -> Fp8Matrices:
        """The matrix that is rows start..start+rows of all. Raises ValueError where no matrix is."""
        first = 0
        for codes, scales in self.parts:
            if (first, codes.shape[0]) == (start, rows):
                return Fp8Matrices(((codes, scales),), self.width)
            first += codes.shape[0]
        raise ValueError(f"rows {start} to {start + rows} are not one of the {len(self.parts)} matrices")


@dataclass(frozen=True)
class Dense:
    """A bfloat16 matrix [N, K] and the load width that its address allows."""

    matrix: mx.array
    width: int


@dataclass(frozen=True)
class Gathered:
    """Experts in a run of file bytes: `shard` uint8, offsets uint64 of (codes, scales) of w1 and w3 [E, 2, 2] and of w2
    [E, 1, 2], where in the file the run begins [1]; `sizes` are the rows of w1 and of w2."""

    shard: mx.array
    up: mx.array
    down: mx.array
    origin: mx.array
    sizes: tuple[int, int]
    width: int


def load_fp8(source: WeightSource, names: Sequence[str]) -> Fp8Matrices:
    """The named matrices, `.weight` and `.scale` of each. Raises ValueError for one too small for a kernel."""
    parts = []
    for name in names:
        codes, scales = source.array(f"{name}.weight"), source.array(f"{name}.scale")
        if scales.size < FEWEST:
            raise ValueError(f"{name}: {scales.size} scales, the kernels need {FEWEST} or more (rows x columns / 1024)")
        parts.append((codes, scales))
    return Fp8Matrices(tuple(parts), min(source.alignment(f"{name}.weight") for name in names))


def load_dense(source: WeightSource, name: str) -> Dense:
    """A bfloat16 matrix. Raises ValueError for another type."""
    matrix = source.array(name)
    if matrix.dtype != mx.bfloat16:
        raise ValueError(f"{name} is {matrix.dtype}, the kernels read bfloat16")
    return Dense(matrix, source.alignment(name))


def load_experts(source: WeightSource, prefix: str, count: int) -> Gathered:
    """Experts `prefix.0` .. `prefix.{count-1}` where they lie in a mapped shard, or copied into one run of bytes."""
    names = [
        [f"{prefix}.{e}.{matrix}.{leaf}" for matrix in ("w1", "w3", "w2") for leaf in ("weight", "scale")]
        for e in range(count)
    ]
    rows, inner = source.raw(names[0][0]).shape
    down = source.raw(names[0][4]).shape[0]
    mapped = source.mapped([name for expert in names for name in expert])
    shard, offsets = mapped if mapped is not None else _copied(source, names)
    offset = np.array(offsets, np.uint64).reshape(count, 3, 2)
    width = _width(offset[..., 0])
    # contiguous, or they would be copied at each launch
    up, last = (mx.array(np.ascontiguousarray(offset[:, part])) for part in (slice(2), slice(2, None)))
    mx.eval(shard, up, last)
    return Gathered(shard, up, last, constant(np.uint64, 0), (rows, down), width)


def _copied(source: WeightSource, names: list[list[str]]) -> tuple[mx.array, list[int]]:
    """Every tensor of every expert in one run of bytes, each at a multiple of 16."""
    offsets, end = [], 0
    for expert in names:
        for name in expert:
            offsets.append(end)
            end += -(-source.raw(name).nbytes // 16) * 16
    run = np.zeros((-(-end // ROW), ROW), np.uint8)
    flat = run.reshape(-1)
    for start, name in zip(offsets, [name for expert in names for name in expert]):
        bits = source.raw(name).reshape(-1).view(np.uint8)
        flat[start : start + bits.size] = bits
    return mx.array(run), offsets


def _width(offsets: np.ndarray) -> int:
    """The largest of 16, 8 and 4 that divides every offset. Raises ValueError where none does."""
    for width in (16, 8, 4):
        if not (offsets % np.uint64(width)).any():
            return width
    raise ValueError("experts lie at addresses that 4 does not divide; safetensors files align to 8")
