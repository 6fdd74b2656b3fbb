"""route: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.route.reference import scores
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


def _ties(rows: int, experts: int) -> Array:
    """Logits of few values, so that most comparisons are ties."""
    return inputs.Draw(experts).integers(-2, 3, rows, experts).astype(f32)


def route() -> list[Case]:
    """Every number of experts and picks in use; ties, zeros, extremes, NaN and infinities."""
    found = []
    scale = np.array([1.5], f32)
    for experts, k in ((8, 2), (8, 3), (12, 3), (16, 4), (16, 6), (128, 3), (384, 6)):
        draw = inputs.Draw(experts + k)
        rows = 16 if (experts, k) in ((16, 4), (384, 6)) else 3
        arrays = draw.normal(rows, experts, scale=2.0), draw.normal(experts, scale=0.1), scale
        found.append(Case(f"{k} of {experts}", arrays, {"k": k}, rows=rows == 16))
    none = np.zeros(384, f32)
    found.append(Case("ties", (_ties(16, 384), none, scale), {"k": 6}))
    found.append(Case("all equal", (np.zeros((2, 384), f32), none, scale), {"k": 6}))
    # an equal score in a later lane and slot: 5, 37 and 69 share a lane, 6 and 36 do not
    tied = np.full((4, 128), -4.0, f32)
    for row, best in enumerate(([5, 37, 69, 6], [69, 36, 6], [127, 126, 95, 0], [64, 32, 31, 33])):
        tied[row, best] = 1.0
    found.append(Case("ties across lanes", (tied, np.zeros(128, f32), scale), {"k": 3}))
    cancelled = inputs.Draw(8).normal(4, 16)
    found.append(Case("score cancelled by bias", (cancelled, -scores(cancelled[0]), scale), {"k": 4}))
    found.append(Case("extreme", (inputs.extremes_f32(128), inputs.Draw(4).normal(128), scale), {"k": 3}))
    found.append(Case("extreme bias", (inputs.Draw(9).normal(3, 16), inputs.extremes_f32(16)[12], scale), {"k": 4}))
    special = np.full((5, 12), np.nan, f32)
    special[0, :2], special[1, 3:], special[2, ::2], special[3, 4:] = 1.0, -np.inf, np.inf, -100.0
    found.append(Case("special", (special, inputs.Draw(5).normal(12), scale), {"k": 3}))
    steep = inputs.Draw(2).uniform(-100, 30, 6, 384)
    found.append(Case("steep, not normalised", (steep, none, np.array([2.5], f32)), {"k": 6, "normalise": False}))
    found.append(Case("steep", (np.minimum(steep, -60), none, scale), {"k": 6}))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "route": ("logits",),
}
