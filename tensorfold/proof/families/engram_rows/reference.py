"""engram_rows: float64 truth and bound. Knows no launch.

Source: docs/model.md#engram (24 rows of 256 a token in the published model).
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.codes import E4M3, UE8M0
from tensorfold.proof.proof import Bound


def engram_rows(codes: Array, scales: Array) -> list[Array]:
    """float64: the code's value times the scale's."""
    with np.errstate(all="ignore"):
        y = E4M3[codes].reshape(*scales.shape, 32).astype(np.float64) * UE8M0[scales][..., None].astype(np.float64)
    return [y.reshape(len(codes), -1)]


BOUNDS = {
    "engram_rows": Bound(
        "a product of 4 significant bits, which bfloat16 holds exactly; below 2^-126 it is zero", ulps=0.0
    ),
}
