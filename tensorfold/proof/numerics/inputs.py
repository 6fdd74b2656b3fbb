"""Inputs of contract cases: the same bits on every machine and numpy version. Knows no kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorfold.proof.numerics.exact import F32, Bits, bits, f32, from_bits, store_bf16
from tensorfold.proof.numerics.philox import philox


class Draw:
    """A stream of deterministic random arrays from a seed (Philox, integer steps alone)."""

    def __init__(self, seed: int):
        self._seed, self._next = seed, 0

    def words(self, *shape: int) -> NDArray[np.uint32]:
        """uint32, every value equally likely."""
        count = int(np.prod(shape))
        blocks = -(-count // 4)
        counter = np.zeros((blocks, 4), np.uint64)
        counter[:, 0] = np.arange(self._next, self._next + blocks)
        self._next += blocks
        return philox(counter, np.array([self._seed, 0x7F01D])).reshape(-1)[:count].reshape(shape)

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int32]:
        """int32 in low..high-1."""
        return (
            low + (self.words(*shape).astype(np.uint64) * np.uint64(high - low) >> np.uint64(32)).astype(np.int64)
        ).astype(np.int32)

    def bytes(self, *shape: int) -> NDArray[np.uint8]:
        """uint8, every value equally likely."""
        return (self.words(*shape) >> 24).astype(np.uint8)

    def uniform(self, low: float, high: float, *shape: int) -> F32:
        """float32 in low..high."""
        return (f32(low) + (self.words(*shape) >> 8).astype(f32) * f32((high - low) * 2.0**-24)).astype(f32)

    def normal(self, *shape: int, scale: float = 1.0) -> F32:
        """float32, near normal (sum of four uniforms), standard deviation `scale`."""
        total = (self.words(4, *shape) >> 10).astype(np.int64).sum(0) - 2 * (1 << 22)
        return (total.astype(f32) * f32(scale * 2.0**-22 * 3.0**0.5)).astype(f32)

    def bf16(self, *shape: int, scale: float = 1.0) -> Bits:
        """bfloat16 bits, near normal."""
        return store_bf16(self.normal(*shape, scale=scale))

    def any_bf16(self, *shape: int) -> Bits:
        """bfloat16 bits of every kind: NaN, infinities, subnormals, both zeros."""
        return (self.words(*shape) >> 16).astype(np.uint16)


def bf16_ties(y: ArrayLike) -> F32:
    """For each value the point halfway between its two bfloat16 neighbours: there the last bit of float32 shows."""
    return from_bits((bits(y) & np.uint32(0xFFFF0000)) | np.uint32(0x8000))


def extremes_f32(width: int, largest: float = 1e15) -> F32:
    """16 rows that break naive kernels: zeros, -0, one hot, cancelling, saturating, tiny, subnormal, inf, NaN."""
    draw = Draw(width)
    base = draw.normal(width)
    sign = np.where(np.arange(width) % 2, f32(-1), f32(1))
    one_hot, last_hot = np.zeros(width, f32), np.zeros(width, f32)
    one_hot[0], last_hot[-1] = 3.0, -5.0
    spread = from_bits(
        (draw.integers(127 - 40, 127 + 40, width).astype(np.uint32) << 23) | (draw.words(width) & 0x807FFFFF)
    )
    infinite, nan, minus = base.copy(), base.copy(), base.copy()
    infinite[width // 2], nan[width - 1], minus[1] = np.inf, np.nan, -np.inf
    rows = [
        np.zeros(width, f32), np.full(width, -0.0, f32), np.where(sign > 0, f32(0), f32(-0.0)), one_hot, last_hot,
        sign * f32(largest), np.full(width, largest, f32), base * f32(largest), base * f32(1e-15),
        np.full(width, 1.0, f32), np.full(width, 2.0**-126, f32) * sign, np.full(width, 1e-40, f32) * sign,
        spread, infinite, minus, nan,
    ]  # fmt: skip
    return np.stack(rows).astype(f32)


def extremes_bf16(width: int, largest: float = 1e15) -> Bits:
    """`extremes_f32` as bfloat16 bits, subnormals kept."""
    u = np.ascontiguousarray(extremes_f32(width, largest)).view(np.uint32)
    rounded = ((u + np.uint32(0x7FFF) + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where((u & 0x7FFFFFFF) > 0x7F800000, np.uint16(0x7FC0), rounded)


def overflow_bf16(width: int) -> Bits:
    """Rows whose squares leave the range of float32, and every kind of bit pattern."""
    draw = Draw(width + 1)
    return np.concatenate(
        [store_bf16(draw.normal(2, width) * f32(1e30)), np.full((1, width), 0x7F7F, np.uint16), draw.any_bf16(5, width)]
    )
