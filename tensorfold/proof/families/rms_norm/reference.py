"""rms_norm: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers. Everything in float32, one rounding to bfloat16.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def rms_norm(x: Array, w: Array, eps: Array) -> list[Array]:
    """float64 truth."""
    v = wide(x)
    with np.errstate(all="ignore"):
        return [wide(w) * (v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + wide(eps)))]


BOUNDS = {
    "rms_norm": Bound(
        "one rounding to bfloat16 (0.5 ulp); the float32 sum of squares of K <= 5120 terms in chains of at most 20 "
        "and 8 levels of additions, halved by the square root, and three more roundings: below 32 * 2^-24",
        ulps=0.5,
        relative=32 * 2.0**-24,
    ),
}
