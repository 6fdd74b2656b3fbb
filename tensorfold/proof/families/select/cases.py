"""select_rows: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


def _case(
    name: str, scores: Array, visible: Any, k: int, kept: Array | None = None, rows: bool = False, **more: Any
) -> Case:
    count, c = scores.shape
    seen = np.broadcast_to(np.asarray(visible, np.int32), (count,)).copy()
    none = np.zeros((count, 1), np.int32) if kept is None else kept
    sizes = np.array([c, k], np.int32)
    return Case(name, (scores.astype(f32), seen, none, sizes), {"k": k, **more}, rows=rows)


def select_rows() -> list[Case]:
    """Few and many columns, ties at the boundary, every visible number near it, NaN, infinities, candidates, flags."""
    found = []
    draw = inputs.Draw(21)
    found.append(_case("32 of 128", draw.normal(16, 128), draw.integers(1, 129, 16), 32, rows=True))
    edge = [0, 1, 31, 32, 33, 34, 199, 200]
    found.append(_case("visible near k", draw.normal(8, 200), edge, 32))
    found.append(_case("512 of 3000", draw.normal(3, 3000), [3000, 2999, 513], 512))
    found.append(_case("ties", draw.integers(-2, 3, 6, 700).astype(f32), [700, 699, 600, 40, 32, 513], 32))
    found.append(_case("all equal", np.zeros((2, 1100), f32), [1100, 1040], 512))
    found.append(_case("all", draw.normal(3, 20), [20, 7, 0], 32))
    signed = np.where(draw.integers(0, 2, 2, 96) > 0, f32(0.0), f32(-0.0))
    found.append(_case("zeros of both signs", signed, 96, 5))
    found.append(_case("extreme", inputs.extremes_f32(96), 96, 32))
    # keys that differ in one digit alone, for every digit
    steps = (0x40000000 + (np.arange(64, dtype=np.uint32)[None] << np.array([[0], [4], [8], [12], [16]]))).astype(
        np.uint32
    )
    found.append(_case("last digits", steps[:, ::-1].copy().view(f32), 64, 7))
    special = draw.normal(4, 96)
    special[0, ::2], special[1, 5:], special[2, 90:], special[3] = np.nan, -np.inf, np.inf, np.nan
    found.append(_case("special", special, 96, 60))
    kept = draw.integers(0, 2, 5, 75)
    kept[3], kept[4] = 0, 1
    found.append(_case("candidates", draw.normal(5, 299), [299, 298, 150, 299, 299], 32, kept, rows=True, block=4))
    flagged = draw.integers(-3, 3, 5, 130).astype(f32)
    flagged[0, 3:], flagged[1, 20:], flagged[2, ::3], flagged[3] = -np.inf, np.nan, np.inf, np.nan
    found.append(_case("flags", flagged, 130, 12, rows=True, flags=True))
    found.append(_case("all flags", flagged[:, :9], 9, 12, flags=True))
    return found


def long_contexts() -> list[Case]:
    """Columns of long contexts: equal scores, whose counts are multiples of 2^8 by thread and of 2^16 by stretch, and
    scores of every digit. The truth counts what comes before each score, which is not for so many."""
    equal, draw = np.ones((1, 1_048_640), f32), inputs.Draw(24)
    scores, kept = draw.normal(1, 524_288), draw.integers(0, 2, 1, 524_288 // 8)
    found = [
        _case("2^20 of equal score", equal, 2**20, 512),
        _case("512 of 524288", scores, 524_287, 512, kept, block=8),
        _case("flags of 131072", scores[:, :131_072], 131_072, 2048, flags=True),
    ]
    return [replace(case, bounded=False) for case in found]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "select_rows": ("scores", "visible", "kept"),
}
ONCE = {"select_rows": long_contexts}
