"""index_scores: float64 truth and bound. Knows no launch.

Source: docs/model.md#indexer and docs/model.md#decisions: float32 throughout, relu before the heads' weights.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.codes import E2M1, UE8M0, unpack_nibbles
from tensorfold.proof.numerics.exact import F32, load, mul_flushed, wide
from tensorfold.proof.proof import Bound


def unpack(rows: Array) -> tuple[F32, F32]:
    """Packed rows -> codes' values [..., K / 32, 32] and scales [..., K / 32]."""
    k = rows.shape[-1] // 17 * 32
    codes = E2M1[unpack_nibbles(rows[..., : k // 2])]
    return codes.reshape(*rows.shape[:-1], k // 32, 32), UE8M0[rows[..., k // 2 :]]


def block_dots(queries: Array, cache: Array, fresh: Array, places: Array, segment: Array) -> tuple[F32, F32, Array]:
    """Exact block dots [R, H, C, K / 32], products of scales, and which places are empty [R, C]."""
    at = places[segment]
    q, qs = unpack(queries)
    k, ks = unpack(np.concatenate([cache, fresh])[np.maximum(at, 0)])
    return np.einsum("rhbi,rcbi->rhcb", q, k), mul_flushed(qs[:, :, None], ks[:, None]), at < 0


def _truth(dots: Array, scales: Array, empty: Array, weights: Array) -> Array:
    with np.errstate(all="ignore"):
        total = np.sum(dots.astype(np.float64) * scales, -1)
        total = np.where(total < 0, 0, total) * wide(weights)[:, :, None]
        return np.where(empty, -np.inf, total.sum(1))


def index_scores(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    """float64 truth; scales' products as float32 holds them (powers of two)."""
    return [_truth(*block_dots(queries, cache, fresh, places, segment), weights)]


def _magnitude(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    dots, scales, empty = block_dots(queries, cache, fresh, places, segment)
    absolute = _truth(np.abs(dots), scales, empty, np.abs(load(weights)))
    return [np.where(np.isfinite(absolute), absolute, 0)]


BOUNDS = {
    "index_scores": Bound(
        "a block's dot is exact; at most 3 additions of blocks, a product and 5 levels of heads: 10 roundings "
        "of 2^-24 of the sum of magnitudes; a flushed part costs 2^-126 times a weight",
        ulps=0.5,
        absolute=10 * 2.0**-24,
        tiny=2.0**-110,
        scale=_magnitude,
    ),
}
