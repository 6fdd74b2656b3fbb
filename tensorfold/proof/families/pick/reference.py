"""pick_parts and pick: float64 truths and bounds. Knows no launch.

Source: the engine's pick, for rows without bias, penalty, filters and log-probabilities: the same noise, the same bits.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.pick.stated import cut_into_parts, key_of, scores
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Bound


def pick_parts(logits: Array, temperature: Array, seed: Array, position: Array) -> list[Array]:
    """The first largest score of each part, compared as float64 numbers, NaN below -inf."""
    y = scores(logits, temperature, seed, position).astype(np.float64)
    lowest = np.where(np.isnan(y), -np.inf, np.where(np.isneginf(y), np.finfo(np.float64).min, y))
    return cut_into_parts(logits, key_of(y.astype(f32)), lambda cut: np.argmax(lowest[:, cut], -1))


def pick(given: Array) -> list[Array]:
    """One by one."""
    ids = []
    for row in given.tolist():
        best = row[0]
        for part in row[1:]:
            if part[0] > best[0] or (part[0] == best[0] and part[1] < best[1]):
                best = part
        ids.append(best[1])
    return [np.array(ids, np.int32), np.array([all(part[2] == 0 for part in row) for row in given.tolist()])]


BOUNDS = {
    "pick_parts": Bound("keys, tokens and flaws are integers of the stated scores and must be equal"),
    "pick": Bound("tokens and flags are integers of the parts and must be equal"),
}
