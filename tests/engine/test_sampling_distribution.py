"""Keyed draws have the distribution that was asked for; knows nothing of how the noise is made."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tensorfold.engine.sampling import RowParams, SamplingParams, pick

VOCAB, DRAWS, RARE, BATCH = 1000, 200_000, 50, 250


def test_200000_draws_of_a_skewed_distribution_stay_within_the_chi_square_bound():
    rng = np.random.default_rng(7)
    weights = (1.0 + np.arange(VOCAB - RARE)) ** -1.3
    p = np.concatenate([weights / weights.sum() * (1 - RARE * 1e-8), np.full(RARE, 1e-8)])
    p = p[rng.permutation(VOCAB)]
    heat = 0.8
    logits = mx.broadcast_to(mx.array((heat * np.log(p) + 3.0).astype(np.float32)), (BATCH, VOCAB))
    counts = np.zeros(VOCAB, dtype=np.int64)
    start = RowParams.build([SamplingParams(temperature=heat, seed=20 + i % 4) for i in range(BATCH)], [0] * BATCH)
    for first in range(0, DRAWS, BATCH):
        drawn = pick(logits, start.at(mx.arange(first, first + BATCH, dtype=mx.int32)))
        counts += np.bincount(np.array(drawn.ids), minlength=VOCAB)
    own = p * DRAWS >= 5
    seen = np.append(counts[own], counts[~own].sum())
    expected = np.append(p[own], p[~own].sum()) * DRAWS
    statistic, freedom = float(((seen - expected) ** 2 / expected).sum()), len(seen) - 1
    # the cube of a normal variable [Wilson and Hilferty]: the 0.05% points at both ends
    spread = np.sqrt(2 / (9 * freedom))
    low, high = (freedom * (1 - 2 / (9 * freedom) + z * spread) ** 3 for z in (-3.29, 3.29))
    assert freedom > 500
    assert low < statistic < high
    assert counts[p < 2e-8].sum() <= 2
