"""block_scores: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.far import apart
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case, Far


def block_scores() -> list[Case]:
    """Every block size in use, visible numbers at the edges of blocks, tails, ties, NaN and infinities."""
    found = []
    for block, c in ((4, 203), (8, 1024), (8, 2051)):
        draw = inputs.Draw(c)
        rows = 16 if c == 203 else 3
        visible = draw.integers(1, c + 1, rows)
        visible[:3] = 0, block, c
        arrays = draw.normal(rows, c), visible, np.array([c], np.int32)
        found.append(Case(f"{c} by {block}", arrays, {"block": block}, rows=rows == 16))
    special = inputs.extremes_f32(96)
    special[3:5, ::5], special[5, 8:16], special[6] = np.nan, -np.inf, -np.inf
    visible = np.array([96, 95, 93, 92, 91, 90, 89, 88, 9, 8, 7, 1, 0, 96, 96, 96], np.int32)
    found.append(Case("special", (special, visible, np.array([96], np.int32)), {"block": 8}))
    signed = np.full((2, 64), -0.0, f32)
    found.append(Case("negative zero", (signed, np.array([64, 5], np.int32), np.array([64], np.int32)), {"block": 4}))
    return found


def far_columns() -> list[Far]:
    """The first and the last of 2^30 columns, the newest visible one among the last."""
    c, block = 2048, 8
    scores, visible = inputs.Draw(22).normal(1, c), np.array([c - 5], np.int32)
    held = apart(scores, 2**30, axis=1)
    case = Case("far columns", (scores, visible, np.array([c], np.int32)), {"block": block})
    return [Far(case, (held, visible + np.int32(held.hole), np.array(held.shape[1:], np.int32)), (1, 2))]


def long_contexts() -> list[Case]:
    """Real columns of a long context."""
    columns = 1_048_640
    scores = inputs.Draw(23).normal(1, columns)
    arrays = scores, np.array([columns - 3], np.int32), np.array([columns], np.int32)
    return [Case(f"{columns} by 8", arrays, {"block": 8})]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "block_scores": ("scores", "visible"),
}
ONCE, FAR_CASES = {"block_scores": long_contexts}, {"block_scores": far_columns}
