"""The arithmetic that stated-order references are written with: exact fma, roundings, and the orders of sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tensorfold.proof.numerics.exact import (
    fma,
    from_bits,
    lane_sum,
    load,
    load_bf16,
    mul_flushed,
    store_bf16,
    store_f32,
    strided_sum,
    tree_sum,
)

F = np.float32


def _nearest(exact: Fraction) -> np.float32:
    """The float32 nearest to an exact value, ties to even, by comparing neighbours."""
    guess = F(float(exact))
    near = [np.nextafter(guess, F(-np.inf)), guess, np.nextafter(guess, F(np.inf))]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.uint32)) & 1))


def test_fma_rounds_once() -> None:
    draw = np.random.default_rng(0)
    a = (draw.standard_normal(2000)).astype(F)
    b = (draw.standard_normal(2000)).astype(F)
    c = (-(a.astype(np.float64) * b) * (1 + 2.0 ** -draw.integers(8, 30, 2000))).astype(F)
    # a double rounding to float32 goes wrong on these: the product's tail decides a tie of the sum
    a[:4], b[:4], c[:4] = F(1 + 2**-23), F(1 + 2**-23), [F(2.0**k) for k in (1, 5, 20, 24)]
    a[4:6], b[4:6], c[4:6] = F(2**-12 + 2**-35), F(2**-12), [F(1), F(-1)]
    got = fma(a, b, c)
    for x, y, z, value in zip(a, b, c, got):
        assert value == _nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def test_double_rounding_would_be_wrong_here() -> None:
    a, b, c = F(2**-12 * (1 + 2**-16)), F(2**-12 * (1 - 2**-16)), F(1 + 2**-23)
    assert F(np.float64(a) * np.float64(b) + np.float64(c)) == F(1 + 2**-22)
    assert fma(a, b, c) == F(1 + 2**-23)


def test_fma_specials() -> None:
    inf, nan = F(np.inf), F(np.nan)
    assert fma(inf, F(2), F(1)) == inf and np.isnan(fma(inf, F(0), F(1))) and np.isnan(fma(F(1), F(1), nan))
    assert fma(F(3e38), F(2), F(-3e38)) == F(3e38) and fma(F(3e38), F(2), F(0)) == inf


def test_bfloat16_is_nearest_even() -> None:
    u = np.arange(1 << 16, dtype=np.uint32)
    lower = from_bits(u[(u & 0x7F80) != 0x7F80] << 16)
    lower = lower[np.abs(lower) >= 2.0**-126]
    bits16 = (lower.view(np.uint32) >> 16).astype(np.uint16)
    tie, above = from_bits(lower.view(np.uint32) | 0x8000), from_bits(lower.view(np.uint32) | 0x8001)
    assert np.array_equal(store_bf16(lower), bits16)
    assert np.array_equal(store_bf16(tie), bits16 + (bits16 & 1))
    assert np.array_equal(store_bf16(above), bits16 + 1)
    assert np.array_equal(load_bf16(bits16), lower)


def test_subnormals_and_nan() -> None:
    x = np.array([1e-40, -1e-40, 2.0**-126, np.nan, -np.nan, np.inf], F)
    assert store_bf16(x).tolist() == [0, 0x8000, 0x0080, 0x7FC0, 0x7FC0, 0x7F80]
    assert store_f32(x).view(np.uint32).tolist() == [0, 0x80000000, 0x00800000, 0x7FC00000, 0x7FC00000, 0x7F800000]
    assert load(np.array([1, 0x8001, 0x0080], np.uint16)).view(np.uint32).tolist() == [0, 0x80000000, 0x00800000]
    assert mul_flushed(F(2.0**-100), F(-(2.0**-30))).view(np.uint32) == 0x80000000


def test_orders_of_sums() -> None:
    v = np.random.default_rng(1).standard_normal((3, 32)).astype(F)
    by_hand = v
    for distance in (16, 8, 4, 2, 1):
        by_hand = np.stack([by_hand[:, lane] + by_hand[:, lane ^ distance] for lane in range(32)], axis=1)
    assert np.array_equal(lane_sum(v), by_hand[:, 0])
    assert np.array_equal(tree_sum(v[:, :4]), (v[:, 0] + v[:, 1]) + (v[:, 2] + v[:, 3]))
    sums = strided_sum(v[:, :7], 3, lambda acc, e: acc + e)
    assert np.array_equal(sums[:, 0], (v[:, 0] + v[:, 3]) + v[:, 6]) and np.array_equal(sums[:, 2], v[:, 2] + v[:, 5])
