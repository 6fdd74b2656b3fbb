"""select_rows: truth and bound. Knows no launch.

Source: docs/model.md#indexer and docs/model.md#decisions: ties go to the lower row, NaN ranks below everything.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def _before(v: Array) -> Array:
    """How many of v [N] come before each: numbers before NaN, larger before smaller, equal ones by index."""
    nan, at = np.isnan(v), np.arange(len(v))
    better = (v[None] > v[:, None]) | (nan[:, None] & ~nan[None])
    equal = (v[None] == v[:, None]) | (nan[:, None] & nan[None])
    return np.sum(better | (equal & (at[None] < at[:, None])), -1)


def select_rows(
    scores: Array, visible: Array, kept: Array, sizes: Array, k: int, block: int = 0, flags: bool = False
) -> list[Array]:
    """By counting: a score is taken when fewer than k come before it."""
    v = wide(scores)
    rows, c = v.shape
    if block:
        v = np.where(kept[:, np.arange(c) // block] == 0, -np.inf, v)
    found = []
    for r in range(rows):
        seen = v[r] if flags else v[r, : np.clip(visible[r], 0, c)]
        taken = _before(seen) < k
        if flags:
            found.append((taken & (seen > -np.inf)).astype(np.int32))
        else:
            at = np.flatnonzero(taken)
            found.append(np.concatenate([at, np.full(min(k, c) - len(at), -1)]).astype(np.int32))
    return [np.stack(found)]


BOUNDS = {
    "select_rows": Bound("indices and flags are integers and must be equal", ulps=0.0),
}
