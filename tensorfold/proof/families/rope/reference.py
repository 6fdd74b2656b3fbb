"""rope: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers: adjacent pairs of the last dims.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def turn(
    x: Array, table: Array, positions: Array, inverse: bool, product: Callable[[Array, Array], Array] = np.multiply
) -> Array:
    turned = 2 * table.shape[1]
    y = x.copy()
    c, s = table[positions][:, None, :, 0], table[positions][:, None, :, 1]
    s = -s if inverse else s
    a, b = x[..., -turned::2], x[..., x.shape[-1] - turned + 1 :: 2]
    with np.errstate(all="ignore"):
        y[..., -turned::2], y[..., y.shape[-1] - turned + 1 :: 2] = (
            product(a, c) - product(b, s),
            product(a, s) + product(b, c),
        )
    return y


def rope(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    """float64 truth, from the given table."""
    return [turn(wide(x), wide(table), positions, inverse)]


def _magnitude(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    v = np.abs(wide(x))
    return [np.maximum(v, np.where(np.arange(v.shape[-1]) % 2, np.roll(v, 1, -1), np.roll(v, -1, -1)))]


BOUNDS = {
    "rope": Bound(
        "one rounding to bfloat16 (0.5 ulp); two rounded products of magnitude at most max(|a|, |b|) and their "
        "rounded sum: 3 * 2^-24 of that magnitude, which a half ulp of bfloat16 can still follow",
        ulps=0.5,
        relative=2.0**-24,
        absolute=3 * 2.0**-24,
        tiny=3 * 2.0**-126,
        scale=_magnitude,
    ),
}
