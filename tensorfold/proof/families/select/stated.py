"""select_rows: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import load


def select_rows(
    scores: Array, visible: Array, kept: Array, sizes: Array, k: int, block: int = 0, flags: bool = False
) -> list[Array]:
    """By a full sort of each row: by value, then index."""
    v = load(scores).copy()
    rows, c = v.shape
    if block:
        v[np.repeat(kept == 0, block, 1)[:, :c]] = -np.inf
    out = np.full((rows, c if flags else min(k, c)), 0 if flags else -1, np.int32)
    for r in range(rows):
        n = c if flags else min(max(int(visible[r]), 0), c)
        order = np.lexsort((np.arange(n), -v[r, :n], np.isnan(v[r, :n])))
        if flags:
            order = order[v[r, order] > -np.inf]
            out[r, order[:k]] = 1
        else:
            best = np.sort(order[:k])
            out[r, : len(best)] = best
    return [out]
