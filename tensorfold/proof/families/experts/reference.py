"""experts_up and experts_down: float64 truths and bounds. Knows no launch.

Source: docs/model.md#numbers and docs/model.md#experts: products of decoded values, float32 sums, one rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.codes import E2M1, UE8M0, unpack_nibbles
from tensorfold.proof.numerics.exact import F32, load
from tensorfold.proof.proof import Bound

BLOCK = 32  # codes that share a scale


def weight(shard: Array, place: Array, origin: Array, n: int, k: int) -> tuple[Array, Array]:
    """Codes uint8 [n, K] and scale bytes uint8 [n, K / 32] of the matrix at `place` (codes, scales)."""
    code, scale = (int(p) - int(origin[0]) for p in place)
    flat = shard.reshape(-1)
    packed = flat[code : code + n * k // 2].reshape(n, k // 2)
    return unpack_nibbles(packed), flat[scale : scale + n * k // BLOCK].reshape(n, k // BLOCK)


def planes_of(x: Array) -> Array:
    """bfloat16 bits [.., K] as float planes [.., 4, K / 16, 4]: element 16 c + 4 j + e stands at [j, c, e]."""
    return np.ascontiguousarray(np.moveaxis(load(x).reshape(*x.shape[:-1], -1, 4, 4), -2, -3))


def values(x: Array) -> F32:
    """x as float32 [.., K]."""
    if x.dtype == np.uint16:
        return load(x)
    return np.moveaxis(x, -3, -2).reshape(*x.shape[:-3], -1)


def each(arrays: Sequence[Array], n: int, one: Callable[[F32, Array, Array], Array]) -> list[Array]:
    """`one(x [K], codes [n, K], scale bytes [n, K / 32])` -> [n] for every pair, an output a matrix: [R, picks, n]."""
    given, ids, shard, place, origin = arrays
    x = values(given)
    found: list[Array] = []
    k = x.shape[-1]
    for matrix in range(place.shape[1]):
        weights = {int(e): weight(shard, place[int(e), matrix], origin, n, k) for e in np.unique(ids)}
        rows = [
            [one(row if row.ndim == 1 else row[i], *weights[int(e)]) for i, e in enumerate(picked)]
            for row, picked in zip(x, ids)
        ]
        found.append(np.array(rows))
    return found


def _decoded(w: Array, factors: Array) -> Array:
    """w [n, K] in float64, exact."""
    with np.errstate(invalid="ignore"):
        return E2M1[w].astype(np.float64) * np.repeat(UE8M0[factors].astype(np.float64), BLOCK, -1)


def _product(x: F32, w: Array, factors: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.sum(_decoded(w, factors) * x.astype(np.float64), -1)


def _sizes(x: F32, w: Array, factors: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.sum(np.abs(_decoded(w, factors) * x.astype(np.float64)), -1)


def experts_up(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float64 truth."""
    return each(arrays, n, _product)


def experts_down(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float64 truth."""
    return each(arrays, n, _product)


def magnitude(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """The sums of |w x|."""
    return each(arrays, n, _sizes)


_BOUND = Bound(
    "one rounding to bfloat16 (0.5 ulp); of float32 31 roundings in a block, at most 16 blocks a "
    "running sum and 5 levels of the tree: below 64 * 2^-24 of the sum of magnitudes; a flush may cost 2^-126 at each "
    "of at most 512 blocks and at the tree",
    ulps=0.5,
    absolute=64 * 2.0**-24,
    tiny=1024 * 2.0**-126,
    scale=magnitude,
)


BOUNDS = {
    "experts_up": _BOUND,
    "experts_down": _BOUND,
}
