"""The pick in two launches: the best token of each part, greedy or by keyed noise, then the best part. No filters.

Source: the engine's pick, for rows without bias, penalty, filters and log-probabilities: the same noise, the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.pick import parts


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """parts uint32 [R, P, 3] of pick_parts -> ids int32 [R], finite bool [R] (false: the id means nothing)."""
    (given,) = arrays
    if len(given.shape) != 3 or given.shape[2] != 3:
        raise ValueError(f"pick: parts {tuple(given.shape)}, expected [R, P, 3]")
    rows, count, _ = given.shape
    return Launch({"COUNT": count}, (32 * rows, 1, 1), (32, 1, 1), ((rows,), (rows,)), (mx.int32, mx.bool_))


def stated(given: Array) -> list[Array]:
    """The largest key, ties to the lower token: sorted by both."""
    order = [np.lexsort((row[:, 1], ~row[:, 0]))[0] for row in given]
    ids = np.array([row[i, 1] for row, i in zip(given, order)], np.int32)
    return [ids, ~np.any(given[:, :, 2] != 0, -1)]


def reference(given: Array) -> list[Array]:
    """One by one."""
    ids = []
    for row in given.tolist():
        best = row[0]
        for part in row[1:]:
            if part[0] > best[0] or (part[0] == best[0] and part[1] < best[1]):
                best = part
        ids.append(best[1])
    return [np.array(ids, np.int32), np.array([all(part[2] == 0 for part in row) for row in given.tolist()])]


def _drawn(rows: int, count: int, keys: int, flawed: bool) -> tuple[Array]:
    """Parts with few different keys and, in some, flaws; tokens ascending."""
    draw = inputs.Draw(rows * count + keys)
    key = np.uint32(0xFFFFFFFF) - draw.integers(0, keys, rows, count).astype(np.uint32)
    token = np.arange(count, dtype=np.uint32) * parts.PART + draw.integers(0, parts.PART, rows, count).astype(np.uint32)
    flaw = (draw.integers(0, 2 * count, rows, count) == 0) & flawed
    return (np.stack([key, token, flaw.astype(np.uint32)], -1).astype(np.uint32),)


def cases() -> list[Case]:
    """Every number of parts in use, ties across lanes and turns, the best in the first and last part, flaws."""
    found = [Case(f"{count} parts", _drawn(3, count, 1 << 30, False)) for count in (1, 2, 127)]
    found.append(Case("rows", _drawn(16, 40, 3, True), rows=True))
    found.append(Case("ties", _drawn(16, 127, 2, True)))
    (ends,) = _drawn(4, 127, 1 << 20, False)
    ends[0, 126, 0] = ends[1, 0, 0] = ends[2, 31, 0] = ends[3, 32, 0] = 0xFFFFFFFF
    ends[0, 126, 2] = 1
    found.append(Case("first and last part", (ends,)))
    nothing = np.ones((2, 5, 3), np.uint32)
    nothing[..., 1] = np.arange(5) * parts.PART
    found.append(Case("nothing but NaN", (nothing,)))
    return found


KERNELS = (
    parts.KERNEL,
    Kernel(
        name="pick",
        path=Path(__file__).with_name("pick.metal"),
        inputs=("parts",),
        outputs=("ids", "finite"),
        geometries=({},),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound("tokens and flags are integers of the parts and must be equal"),
        controls=(
            Control("ties to the higher token of a lane", "at = key > best ?", "at = key >= best ?"),
            Control(
                "ties to the higher token of the lanes",
                "~p_lanemaxu(best == top ? ~at : 0u)",
                "p_lanemaxu(best == top ? at : 0u)",
            ),
            Control("last part missed", "i < uint(COUNT); i += 32u", "i + 1u < uint(COUNT); i += 32u"),
            Control("a part too far", "i < uint(COUNT); i += 32u", "i <= uint(COUNT); i += 32u", backends=("host",)),
            Control("flaws of the first lane alone", "flaw = p_laneor(flaw);", ""),
            Control("every row reads the first", "(row * uint(COUNT) + i) * 3u", "i * 3u"),
        ),
        cases=cases,
        row_inputs=("parts",),
    ),
)
