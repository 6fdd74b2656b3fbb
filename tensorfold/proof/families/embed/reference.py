"""embed: float64 truth and bound. Knows no launch.

Source: docs/model.md#forward, step 1.
"""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def embed(ids: Array, table: Array) -> list[Array]:
    """The rows themselves."""
    return [wide(table)[ids]]


BOUNDS = {
    "embed": Bound("values are copied; a subnormal becomes zero", ulps=0.0),
}
