"""hc_mean: float64 truth and bound. Knows no launch.

Source: docs/model.md#forward, the tap of step 2.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def hc_mean(x: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        return [wide(x).mean(1)]


def _magnitude(x: Array) -> list[Array]:
    return [np.abs(wide(x)).mean(1)]


BOUNDS = {
    "hc_mean": Bound(
        "one rounding to bfloat16 (0.5 ulp); N - 1 rounded sums below the sum of magnitudes, N = 4: 3 * 2^-24 of "
        "the mean magnitude; each sum and the result may be flushed",
        ulps=0.5,
        relative=2.0**-24,
        absolute=4 * 2.0**-24,
        tiny=2 * 2.0**-126,
        scale=_magnitude,
    ),
}
