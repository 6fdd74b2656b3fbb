"""swiglu_weighted: float64 truth and bound. Knows no launch.

Source: docs/model.md#experts: u clamped on both sides, g from above, float32, one rounding to bfloat16.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def swiglu_weighted(gate: Array, up: Array, weights: Array, limit: Array, weighted: bool = True) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        g = np.minimum(wide(gate), limit)
        t = g / (1 + np.exp(-g)) * np.clip(wide(up), -limit, limit)
        return [t * wide(weights)[..., None] if weighted else t]


BOUNDS = {
    "swiglu_weighted": Bound(
        "one rounding to bfloat16 (0.5 ulp); a sigmoid of 2 ulp (4 * 2^-24) and three rounded products, 8 * 2^-24 "
        "in all; below -87 the sigmoid is zero: 87 * 2^-126, times a limit of 10 and a weight of at most 2",
        ulps=0.5,
        relative=8 * 2.0**-24,
        tiny=2048 * 2.0**-126,
    ),
}
