"""moe_join: float64 truth and bound. Knows no launch.

Source: docs/model.md#experts: float32, ascending expert id, then the shared expert, one rounding.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def moe_join(routed: Array, shared: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        return [wide(routed).sum(1) + wide(shared)]


def magnitude(routed: Array, shared: Array) -> list[Array]:
    return [np.abs(wide(routed)).sum(1) + np.abs(wide(shared))]


BOUNDS = {
    "moe_join": Bound(
        "one rounding to bfloat16 (0.5 ulp); at most 8 rounded sums below the sum of magnitudes: 8 * 2^-24 of it; "
        "each sum may be flushed",
        ulps=0.5,
        absolute=8 * 2.0**-24,
        tiny=8 * 2.0**-126,
        scale=magnitude,
    ),
}
