"""attend_scores and attend_values: geometries, all of equal bits, and which a launch uses. Knows no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# HG heads a threadgroup, G SIMD groups, NC compressed columns a thread, AT groups of a row at a time
SCORES = (
    {"HG": 8, "G": 8, "NC": 1, "AT": 2},
    {"HG": 8, "G": 8, "NC": 2, "AT": 1},
    {"HG": 4, "G": 4, "NC": 1, "AT": 2},
)
# HG heads a threadgroup, G SIMD groups, E elements a lane, S shares of a head, SPAN columns at a time; the last takes
# few columns and few blocks at a time, so that short cases too go round more than once
VALUES = (
    {"HG": 2, "G": 20, "E": 4, "S": 4, "SPAN": 640},
    {"HG": 2, "G": 10, "E": 8, "S": 2, "SPAN": 640},
    {"HG": 8, "G": 4, "E": 4, "S": 1, "SPAN": 320},
    {"HG": 1, "G": 8, "E": 2, "S": 2, "SPAN": 256},
)


def choose_scores(backend: str, arrays: Sequence[Any]) -> int:
    """Many rows: more columns a lane share what is read of queries; few: more lanes."""
    return int(arrays[0].shape[0] >= 16)


def choose_values(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows: heads in shares, blocks beside one another, so that every core has some; many: whole heads, more of
    which share a decoded row. What Metal's registers leave room for is not known: no wide threadgroups there."""
    rows = arrays[0].shape[0]
    return 0 if rows == 1 and backend != "metal" else 1 if rows < 24 else 2
