"""compress_pair: float64 truth and bound. Knows no launch.

Source: docs/model.md#compressor, compressor: a softmax over two gates in each dimension, bfloat16 result.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def pairs(opened: Array, own: Array, partner: Array) -> tuple[Array, Array]:
    """Values and gates [M, 2, D] of every group."""
    group = np.concatenate([opened, own])[partner]
    return group[:, :, 0], group[:, :, 1]


def compress_pair(opened: Array, own: Array, partner: Array) -> list[Array]:
    """float64 truth."""
    c, g = (wide(a) for a in pairs(opened, own, partner))
    with np.errstate(all="ignore"):
        e = np.exp(g - g.max(1, keepdims=True))
        return [np.sum(c * (e / e.sum(1, keepdims=True)), 1)]


def _magnitude(opened: Array, own: Array, partner: Array) -> list[Array]:
    return [np.abs(wide(pairs(opened, own, partner)[0])).sum(1)]


BOUNDS = {
    "compress_pair": Bound(
        "one rounding to bfloat16; a weight is off by two exponentials (2 ulp each), the rounding of their "
        "argument (below 0.4 * 2^-24, as x e^-x is) and a division; then two products and a sum: "
        "below 16 * 2^-24 of |c0| + |c1|",
        ulps=0.5,
        absolute=16 * 2.0**-24,
        scale=_magnitude,
    ),
}
