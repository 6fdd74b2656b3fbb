"""block_scores: float64 truth and bound. Knows no launch.

Source: docs/model.md#indexer, candidates: the newest visible row's block is always in, blocks whose best
score is -inf or NaN never are.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def block_scores(scores: Array, visible: Array, columns: Array, block: int) -> list[Array]:
    """All blocks at once: a maximum over visible columns, NaN where there are none, infinity at the newest's."""
    v = wide(scores)
    rows, c = v.shape
    count = -(-c // block)
    at = np.arange(count * block)
    seen = at < np.minimum(visible, c)[:, None]
    v = np.where(seen, np.pad(v, ((0, 0), (0, count * block - c))), -np.inf)
    best = np.where(seen, v, -np.inf).reshape(rows, count, block).max(-1)
    best[~seen.reshape(rows, count, block).any(-1)] = np.nan
    newest = seen & (at == np.minimum(visible, c)[:, None] - 1)
    best[newest.reshape(rows, count, block).any(-1)] = np.inf
    return [best]


BOUNDS = {
    "block_scores": Bound("a maximum of float32 values is one of them", ulps=0.0),
}
