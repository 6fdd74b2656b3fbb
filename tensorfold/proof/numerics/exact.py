"""Float32 arithmetic in stated orders, in numpy: what every kernel's order reference is written with. Knows no kernel.

Arrays hold bfloat16 as its bits in uint16, everywhere in `tensorfold.kernels` and `tensorfold.proof`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]
Bits = NDArray[np.uint16]

f32 = np.float32
NAN_BITS = np.uint32(0x7FC00000)
SMALLEST_NORMAL = 2.0**-126


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """a * b + c rounded once to float32: the product is exact in float64, the sum is rounded to odd first."""
    with np.errstate(all="ignore"):
        x, y, z = np.broadcast_arrays(*(np.asarray(v).astype(np.float64) for v in (a, b, c)))
        product = x * y
        total = np.atleast_1d(product + z)
        back = total - product
        error = np.atleast_1d((product - (total - back)) + (z - back))
        to_odd = (error != 0) & ((total.view(np.int64) & 1) == 0) & np.isfinite(total)
        total = np.where(to_odd, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
        return total.reshape(product.shape).astype(f32)


def bits(x: ArrayLike) -> NDArray[np.uint32]:
    """The bit pattern of float32 values."""
    return np.ascontiguousarray(x, f32).view(np.uint32).reshape(np.shape(x))


def from_bits(u: ArrayLike) -> F32:
    """Float32 values of bit patterns."""
    return np.ascontiguousarray(u, np.uint32).view(f32).reshape(np.shape(u))


def flush(x: ArrayLike) -> F32:
    """Subnormal float32 values become zero of the same sign."""
    u = bits(x)
    return from_bits(np.where((u & 0x7F800000) == 0, u & np.uint32(0x80000000), u))


def mul_flushed(a: ArrayLike, b: ArrayLike) -> F32:
    """a * b in float32 with subnormal results zero: `p_mulz`."""
    with np.errstate(all="ignore"):
        return flush(np.multiply(a, b, dtype=f32))


def store_f32(x: ArrayLike) -> F32:
    """What a kernel writes as float32: flushed, every NaN the one canonical NaN."""
    u = bits(flush(x))
    return from_bits(np.where((u & 0x7FFFFFFF) > 0x7F800000, NAN_BITS, u))


def load_bf16(u: Bits) -> F32:
    """bfloat16 bits to float32; subnormals are flushed to signed zero."""
    return flush(from_bits(np.asarray(u, np.uint32) << 16))


def store_bf16(x: ArrayLike) -> Bits:
    """float32 to bfloat16 bits: flushed, rounded to nearest even, NaN is 0x7fc0."""
    u = bits(flush(x))
    rounded = (u + np.uint32(0x7FFF) + ((u >> 16) & 1)) >> 16
    return np.where((u & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FC0), rounded).astype(np.uint16)


def load(x: NDArray) -> F32:
    """A kernel's load of a float32 or bfloat16 (uint16) array: exact, subnormals flushed."""
    return load_bf16(x) if x.dtype == np.uint16 else flush(x)


def wide(x: NDArray) -> NDArray[np.float64]:
    """The loaded values in float64: what float64 references start from."""
    with np.errstate(invalid="ignore"):
        return load(x).astype(np.float64)


def lane_sum(v: NDArray, order: tuple[int, ...] = (16, 8, 4, 2, 1)) -> NDArray:
    """Sum over the 32 lanes of the last axis, pairs at the given distances: `p_lanesum`."""
    lanes = np.arange(32)
    with np.errstate(all="ignore"):
        for distance in order:
            v = v + v[..., lanes ^ distance]
    return v[..., 0]


def tree_sum(v: NDArray) -> NDArray:
    """Balanced tree over the last axis (a power of two), neighbours first: `p_treesum`."""
    with np.errstate(all="ignore"):
        while v.shape[-1] > 1:
            v = v[..., 0::2] + v[..., 1::2]
    return v[..., 0]


def running_sums(chunks: int) -> int:
    """How many running sums share so many chunks: the largest of 32, 16, 8, 4, 2 and 1 that divides their number."""
    return next(lanes for lanes in (32, 16, 8, 4, 2, 1) if chunks % lanes == 0)


def strided_sum(v: F32, lanes: int, step: Callable[[F32, F32], F32]) -> F32:
    """`lanes` running values over the last axis, lane i takes i, i + lanes, ... in turn: step(acc, element)."""
    count = -(-v.shape[-1] // lanes) * lanes
    padded = np.zeros((*v.shape[:-1], count), f32)
    padded[..., : v.shape[-1]] = v
    acc = np.zeros((*v.shape[:-1], lanes), f32)
    for start in range(0, v.shape[-1], lanes):
        width = min(lanes, v.shape[-1] - start)
        acc[..., :width] = step(acc[..., :width], padded[..., start : start + width])
    return acc
