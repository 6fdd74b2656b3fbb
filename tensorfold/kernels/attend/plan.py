"""attend_scores and attend_values: the arrays they take, and the launch. Knows no slot.

Source: docs/model.md#attention and docs/model.md#decisions: blocks of 64 columns, running maximum, P rounded to
bfloat16; outputs are turned back by the rotary tables of their position.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from tensorfold.kernels.attend.geometry import SCORES, VALUES, choose_scores, choose_values
from tensorfold.kernels.kernel import Geometry, Kernel, Launch
from tensorfold.small import constant

WIDTHS = (64, 128, 256, 512)  # of a head: SIMD groups share them evenly, and 32 KiB hold what meets of them
RUNS = ("window", "window_new", "window_places", "packed", "packed_new", "packed_places")
NAMES = ("q", "table", *RUNS, "sink", "scale", "sizes")
SCORED = ("q", "table", *RUNS, "scale", "sizes")
VALUED = ("scores", "table", *RUNS, "sink", "sizes")
BLOCK = 64  # columns
ALIGNMENT = {"window": 16, "window_new": 16, "packed": 16, "packed_new": 16}


class Shape(NamedTuple):
    """Elements of a head that are turned, and whether rows begin at multiples of 16 bytes."""

    turned: int
    wide: bool


def columns(window: int, compressed: int) -> int:
    """C, the columns of scores of so many places: whole blocks."""
    return -(-(window + compressed) // BLOCK) * BLOCK


def columns_of(runs: Sequence[Any]) -> int:
    """C of these runs."""
    return columns(runs[2].shape[1], runs[5].shape[1])


def checked(kernel: str, rows: int, d: int, table: Any, runs: Sequence[Any], sizes: Any) -> Shape:
    """Shapes of `rows` rows of heads of d elements: table float32 [R, RD / 2, 2], window rows [N and M, D + D / 32] and
    compressed rows [L and P, D / 2 + D / 16] uint8, places int32 [R, W] and [R, K], sizes int32 [5].

    K = 0 in `sizes` leaves the compressed rows out, whatever their places. Raises ValueError where they do not fit.
    """
    window, window_new, window_places, packed, packed_new, packed_places = runs
    if d not in WIDTHS:
        raise ValueError(f"{kernel}: heads of {d} elements, expected {', '.join(map(str, WIDTHS))}")
    near, far, turned = d + d // 32, d // 2 + d // 16, 2 * table.shape[1]
    fits = window.shape[1] == window_new.shape[1] == near and packed.shape[1] == packed_new.shape[1] == far
    angles = tuple(table.shape) == (rows, turned // 2, 2) and turned <= d
    lists = window_places.shape[0] == packed_places.shape[0] == rows and tuple(sizes.shape) == (5,)
    if not fits or not angles or not lists:
        named = zip(RUNS, runs)
        raise ValueError(
            f"{kernel}: table {tuple(table.shape)}, sizes {tuple(sizes.shape)}, "
            f"{', '.join(f'{name} {tuple(a.shape)}' for name, a in named)} do not fit {rows} rows of {d} elements"
        )
    return Shape(turned, d % 512 == 0)


def heads_together(most: int, heads: int) -> int:
    """Heads of a threadgroup: the largest divisor of `heads` up to `most`."""
    return next(n for n in range(min(most, heads), 0, -1) if heads % n == 0)


def plan_scores(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """q bfloat16 [R, H, D], table float32 [R, RD / 2, 2], rows and places as `checked` says, scale float32 [1],
    sizes int32 [N, W, L, K, C] -> scores float32 [R, H, C].
    """
    q, table, *runs, scale, sizes = arrays
    rows, heads, d = q.shape
    shape = checked("attend_scores", rows, d, table, runs, sizes)
    if tuple(scale.shape) != (1,):
        raise ValueError(f"attend_scores: scale {tuple(scale.shape)}, expected (1,)")
    columns, groups, at = columns_of(runs), geometry["G"], min(geometry["AT"], d // 64)
    if d // 64 % at:
        raise ValueError(f"attend_scores: {at} groups at a time do not divide the {d // 64} of a running sum")
    template = {
        "H": heads, "D": d, "RD": shape.turned, "HG": heads_together(geometry["HG"], heads), "G": groups,
        "NC": geometry["NC"], "AT": at, "WIDE": shape.wide,
    }  # fmt: skip
    near = runs[2].shape[1]
    tiles = -(-near // (8 * groups)) + -(-(columns - near) // (8 * geometry["NC"] * groups))
    grid = (heads // template["HG"] * tiles * 32 * groups, rows, 1)
    return Launch(template, grid, (32 * groups, 1, 1), ((rows, heads, columns),), (mx.float32,))


def plan_values(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """scores float32 [R, H, C], table float32 [R, RD / 2, 2], rows and places as `checked` says, sink float32 [H],
    sizes int32 [N, W, L, K, C] -> out bfloat16 [R, H, D].
    """
    scores, table, *runs, sink, sizes = arrays
    rows, heads, columns = scores.shape
    d = runs[0].shape[1] // 33 * 32
    shape = checked("attend_values", rows, d, table, runs, sizes)
    if tuple(sink.shape) != (heads,) or columns != columns_of(runs):
        raise ValueError(
            f"attend_values: scores {tuple(scores.shape)} and sink {tuple(sink.shape)}, "
            f"expected (rows, heads, {columns_of(runs)}) and (heads,)"
        )
    groups, shares = geometry["G"], min(geometry["S"], d // 64)
    lanes = d // shares // 32  # elements of a lane, were there one SIMD group to a block
    template = {
        "H": heads, "D": d, "RD": shape.turned, "HG": heads_together(geometry["HG"], heads), "G": groups,
        "E": max(min(geometry["E"], lanes), lanes // groups), "S": shares, "SPAN": geometry["SPAN"],
        "WIDE": shape.wide,
    }  # fmt: skip
    slices = d // shares // (32 * template["E"])  # SIMD groups that make one block's part
    if groups % slices or template["HG"] * geometry["SPAN"] // 64 > 32 * groups:
        raise ValueError(f"attend_values: {groups} SIMD groups do not suit the other sizes of {dict(geometry)}")
    grid = (heads // template["HG"] * shares * 32 * groups, rows, 1)
    return Launch(template, grid, (32 * groups, 1, 1), ((rows, heads, d),), (mx.bfloat16,))


Run = tuple[mx.array, mx.array, mx.array]


@lru_cache
def _none(rows: int, d: int) -> tuple[mx.array, mx.array]:
    """One compressed row and places that are empty, computed: a lazy array would be computed anew each round."""
    none = mx.zeros((1, d // 2 + d // 16), mx.uint8), mx.full((rows, 1), -1, mx.int32)
    mx.eval(none)
    return none


def attend(
    q: mx.array, table: mx.array, sink: mx.array, window: Run, packed: Run | None = None, *, backend: str
) -> mx.array:
    """Attended bfloat16 [R, H, D] of queries before their rotation, rotated back; `table` float32 [R, RD / 2, 2].

    A run of columns is (cache, this round's rows, places), an empty place is -1.
    """
    rows, _, d = q.shape
    k = packed[2].shape[1] if packed else 0
    if packed is None or not k:
        none, nowhere = _none(rows, d)
        packed = none, none, nowhere
    cache, fresh, places = packed
    runs = *window, cache, fresh if fresh.size else cache[:1], places
    sizes = constant(np.int32, window[0].shape[0], window[2].shape[1], cache.shape[0], k, columns_of(runs))
    scale = constant(np.float32, float(d) ** -0.5)
    (found,) = KERNELS[0](q, table, *runs, scale, sizes, backend=backend)
    return KERNELS[1](found, table, *runs, sink, sizes, backend=backend)[0]


KERNELS = (
    Kernel(
        name="attend_scores",
        path=Path(__file__).with_name("attend_scores.metal"),
        inputs=SCORED,
        outputs=("scores",),
        geometries=SCORES,
        plan=plan_scores,
        alignment={**ALIGNMENT, "q": 16},
        choose=choose_scores,
    ),
    Kernel(
        name="attend_values",
        path=Path(__file__).with_name("attend_values.metal"),
        inputs=VALUED,
        outputs=("out",),
        geometries=VALUES,
        plan=plan_values,
        alignment=ALIGNMENT,
        choose=choose_values,
    ),
)
