"""The portable functions of `maths.h` in numpy, operation for operation. Knows no kernel.

Bounds over the whole range: 2 units in the last place; special values as in each docstring. Subnormal arguments
count as zero and no result is subnormal, so that devices that flush and devices that do not agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tensorfold.proof.numerics.exact import F32, bits, f32, flush, fma, from_bits

LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)
_EXP = [f32(v) for v in (0.0013814539, 0.0083687454, 0.041668389, 0.16666521, 0.49999994)]
_LOG = [f32(v) for v in (0.29873073, 0.39977497, 0.66666776)]


def _exp_reduced(x: F32) -> tuple[F32, F32]:
    """n and e^r - 1 for x = n ln 2 + r."""
    n = np.rint(x * f32(1.44269504)).astype(f32)
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    p = np.broadcast_to(_EXP[0], np.shape(r))
    for c in _EXP[1:]:
        p = fma(p, r, c)
    return n, fma((r * r).astype(f32), p, r)


def _scale(v: F32, n: F32) -> F32:
    """v * 2^n in two exact steps, n in -127..129."""
    k = n.astype(np.int32)
    half = k >> 1
    return v * from_bits((half + 127) << 23) * from_bits((k - half + 127) << 23)


def exp(x: ArrayLike) -> F32:
    """e^x: 0 below -87, inf above 88.72284, NaN for NaN."""
    x = np.asarray(x, f32)
    with np.errstate(all="ignore"):
        inner = np.where((x >= -87) & (x <= f32(88.72284)), x, f32(0))
        n, q = _exp_reduced(inner)
        y = _scale(f32(1) + q, n)
        y = np.where(x < -87, f32(0), np.where(x > f32(88.72284), f32(np.inf), y))
        return np.where(np.isnan(x), x, y).astype(f32)


def _log_mantissa(f: F32) -> tuple[F32, F32]:
    """f^2 / 2 and s (f^2 / 2 + R), with s = f / (2 + f), so that log(1 + f) = f - (f^2/2 - s (f^2/2 + R))."""
    half = (f32(0.5) * f * f).astype(f32)
    s = (f / (f32(2) + f)).astype(f32)
    z = (s * s).astype(f32)
    p = fma(fma(_LOG[0], z, _LOG[1]), z, _LOG[2])
    return half, (s * (half + z * p)).astype(f32)


def log(x: ArrayLike) -> F32:
    """Natural logarithm: -inf for zeros, NaN below zero and for NaN, inf for inf."""
    x = flush(x)
    with np.errstate(all="ignore"):
        u = bits(np.where((x > 0) & np.isfinite(x), x, f32(1)))
        shifted = u - np.uint32(0x3F3504F3)
        k = (shifted.view(np.int32) >> 23).astype(f32)
        f = from_bits((shifted & 0x007FFFFF) + np.uint32(0x3F3504F3)) - f32(1)
        half, tail = _log_mantissa(f)
        low = half - fma(k, LN2_LOW, tail)
        y = fma(k, LN2_HIGH, f - low)
        y = np.where(x == 0, f32(-np.inf), np.where(x == np.inf, x, y))
        return np.where((x < 0) | np.isnan(x), f32(np.nan), y).astype(f32)


def log1p(x: ArrayLike) -> F32:
    """log(1 + x): x for tiny x, -inf at -1, NaN below -1 and for NaN, inf for inf."""
    x = flush(x)
    with np.errstate(all="ignore"):
        inner = np.where((x > -1) & np.isfinite(x), x, f32(0))
        u = (f32(1) + inner).astype(f32)
        lost = np.where(inner >= 1, f32(1) - (u - inner), inner - (u - f32(1)))
        shifted = bits(u) - np.uint32(0x3F3504F3)
        near = (inner > f32(-0.29289323)) & (inner < f32(0.41421354))
        k = np.where(near, f32(0), (shifted.view(np.int32) >> 23).astype(f32))
        f = np.where(near, inner, from_bits((shifted & 0x007FFFFF) + np.uint32(0x3F3504F3)) - f32(1))
        lost = np.where(near, f32(0), (lost / u).astype(f32))
        half, tail = _log_mantissa(f)
        low = half - (tail + fma(k, LN2_LOW, lost))
        y = fma(k, LN2_HIGH, f - low)
        y = np.where(np.abs(inner) < f32(2.0**-25), inner, y)
        y = np.where(x == -1, f32(-np.inf), np.where(x == np.inf, x, y))
        return np.where((x < -1) | np.isnan(x), f32(np.nan), y).astype(f32)


def sigmoid(x: ArrayLike) -> F32:
    """1 / (1 + e^-x): 0 below -87, 1 from 18 on, NaN for NaN."""
    x = np.asarray(x, f32)
    with np.errstate(all="ignore"):
        e = exp(-np.abs(x))
        d = (f32(1) + e).astype(f32)
        lost = (e - (d - f32(1))).astype(f32)
        inverse = (f32(1) / d).astype(f32)
        inverse = fma(fma(-inverse, lost, fma(-inverse, d, f32(1))), inverse, inverse)
        q = (e * inverse).astype(f32)
        q = fma(fma(-q, lost, fma(-q, d, e)), inverse, q)
        small = np.where(x < -18, e, q)
        return np.where(np.isnan(x), x, np.where(x < 0, small, inverse)).astype(f32)


def softplus(x: ArrayLike) -> F32:
    """log(1 + e^x): x above 20, 0 below -87, NaN for NaN."""
    x = np.asarray(x, f32)
    with np.errstate(all="ignore"):
        y = log1p(exp(np.where(x > 20, f32(0), x)))
        return np.where(np.isnan(x) | (x > 20), x, y).astype(f32)


def silu(x: ArrayLike) -> F32:
    """x * sigmoid(x), one rounding after the sigmoid's."""
    x = np.asarray(x, f32)
    with np.errstate(all="ignore"):
        return (x * sigmoid(x)).astype(f32)
