"""index_scores: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.far import apart, moved_in_two
from tensorfold.proof.numerics import inputs
from tensorfold.proof.proof import Case, Far


def packed(draw: inputs.Draw, *shape: int, k: int, low: int = 110, high: int = 134) -> Array:
    """Random packed rows uint8 [*shape, K / 2 + K / 32], scale bytes in low..high-1."""
    return np.concatenate([draw.bytes(*shape, k // 2), draw.integers(low, high, *shape, k // 32).astype(np.uint8)], -1)


def _case(name: str, heads: int, k: int, counts: tuple[int, ...], seed: int, rows: bool = False, **more: Any) -> Case:
    """A case of `counts` = rows, segments, columns, cache rows, new rows; the last columns of a segment are empty."""
    r, s, c, n, m = counts
    draw = inputs.Draw(seed)
    places = draw.integers(0, n + m, s, c)
    for i in range(s):
        places[i, c - 1 - 3 * i :] = -1
        places[i, :3] = n - 1, n, n + m - 1
    queries, weights = packed(draw, r, heads, k=k, **more), draw.bf16(r, heads)
    cache, fresh = packed(draw, n, k=k, **more), packed(draw, m, k=k, **more)
    segment = (np.arange(r) % s).astype(np.int32)
    sizes = np.array([n, c], np.int32)
    return Case(name, (queries, weights, cache, fresh, places, segment, sizes), rows=rows)


def index_scores() -> list[Case]:
    """Every number of heads and width, rows of several segments, an odd number of heads, zero and NaN scales."""
    found = [
        _case("4 x 32", 4, 32, (16, 3, 50, 40, 7), 31, rows=True),
        _case("4 x 64", 4, 64, (5, 2, 130, 60, 5), 32),
        _case("32 x 128", 32, 128, (2, 2, 70, 30, 3), 33),
        _case("5 x 64", 5, 64, (3, 1, 40, 60, 1), 34),
        _case("32 x 32", 32, 32, (3, 2, 64, 40, 3), 35),
    ]
    special = _case("special codes", 4, 64, (6, 2, 64, 32, 2), 36, low=120, high=130)
    queries, _, cache, fresh = special.arrays[:4]
    queries[0, 1, 32], queries[1, :, 33], queries[2, 3, 33] = 0, 0, 255
    cache[3, 32], cache[4, 33], fresh[1, 33], cache[5:9, :32] = 0, 255, 0, 0x88
    special.arrays[1][3, 0], special.arrays[1][4, 1] = 0, 0x8000
    found.append(special)
    tiny = _case("scales far apart", 4, 64, (3, 1, 64, 32, 2), 37, low=1, high=255)
    found.append(Case(tiny.name, tiny.arrays, bounded=False))
    return found


def far_keys() -> list[Far]:
    """Keys, segments and columns behind 2^32 bytes."""
    pool = _case("far keys", 4, 64, (5, 4, 130, 60, 5), 38)
    queries, weights, cache, fresh, places, segment, _ = pool.arrays
    old, new = apart(cache, 2**29), apart(fresh, 2**29)
    lists = apart(moved_in_two(places, old, new), 2**33 // places.shape[1])
    sizes = np.array([old.shape[0], places.shape[1]], np.int32)
    keys = Far(pool, (queries, weights, old, new, lists, lists.moved(segment), sizes))
    row = _case("far columns", 32, 32, (1, 1, 128, 60, 5), 39)
    *others, places, segment, sizes = row.arrays
    spread = apart(places, 2**28, axis=1)
    columns = Far(row, (*others, spread, segment, sizes + np.array([0, spread.hole], np.int32)), (1, 2))
    return [keys, columns]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "index_scores": ("queries", "weights", "segment"),
}
FAR_CASES = {"index_scores": far_keys}
