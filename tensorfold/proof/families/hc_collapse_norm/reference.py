"""hc_collapse_norm: float64 truth and bound. Knows no launch.

Source: docs/model.md#hyper-connections, collapse: a float32 sum rounded to bfloat16, then RMSNorm of that.
Without `norm` the collapse alone, as the drafter's confidence reads it.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import SMALLEST_NORMAL, wide
from tensorfold.proof.proof import Bound


def _round_bf16(v: Array) -> Array:
    """float64 rounded once to bfloat16, smaller than its normals to zero."""
    fraction, exponent = np.frexp(v)
    rounded = np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)
    return np.where(np.abs(v) < SMALLEST_NORMAL, 0.0, np.where(np.isfinite(v), rounded, v))


def _collapsed(x: Array, pre: Array) -> Array:
    return np.sum(wide(pre)[..., None] * wide(x), 1)


def _inverse(h: Array, eps: Array) -> Array:
    return 1 / np.sqrt(np.mean(h * h, -1, keepdims=True) + wide(eps))


def hc_collapse_norm(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
    """float64, with the published rounding in the middle."""
    with np.errstate(all="ignore"):
        if not norm:
            return [_collapsed(x, pre)]
        h = _round_bf16(_collapsed(x, pre))
        return [wide(w) * (h * _inverse(h, eps))]


def allowance(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
    """How far the float32 sum may be off; after the norm only where that crosses an edge of the rounding between."""
    with np.errstate(all="ignore"):
        error = 5 * 2.0**-24 * np.sum(np.abs(wide(pre)[..., None] * wide(x)), 1) + 5 * SMALLEST_NORMAL
        if not norm:
            return [error]
        c = _collapsed(x, pre)
        h = _round_bf16(c)
        step = _round_bf16(c + error) - _round_bf16(c - error)
        r = _inverse(h, eps)
        drift = np.sum(np.abs(h) * step, -1, keepdims=True) / (np.sum(h * h, -1, keepdims=True) + SMALLEST_NORMAL)
        return [np.abs(wide(w)) * r * (step + np.abs(h) * drift)]


BOUNDS = {
    "hc_collapse_norm": Bound(
        "one rounding to bfloat16 (0.5 ulp) of a norm as in rms_norm (32 * 2^-24); a collapse of 5 rounded steps "
        "below the sum of magnitudes, which the norm sees only where it crosses an edge of the rounding between",
        ulps=0.5,
        relative=32 * 2.0**-24,
        absolute=1.0,
        tiny=2.0**-126,
        scale=allowance,
    ),
}
