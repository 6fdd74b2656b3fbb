"""Attention of its scores: plan, geometries, bound. Knows no query.

Source: the model's specification, sections 5 and 10: blocks of 64 columns, running maximum, P rounded to bfloat16;
section 2 for the inverse rotary embedding of outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.attend import mistakes, trials
from tensorfold.kernels.attend import reference as ref
from tensorfold.kernels.attend.runs import ALIGNMENT, VALUED, checked, columns_of, heads_together
from tensorfold.kernels.kernel import Array, Bound, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """scores float32 [R, H, C], table float32 [R, RD / 2, 2], rows and places as `runs.checked` says, sink float32 [H],
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


def choose(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows: heads in shares, blocks beside one another, so that every core has some; many: whole heads, more of
    which share a decoded row. What Metal's registers leave room for is not known: no wide threadgroups there."""
    rows = arrays[0].shape[0]
    return 0 if rows == 1 and backend != "metal" else 1 if rows < 24 else 2


def _slack(*arrays: Array) -> list[Array]:
    return [ref.truth_and_slack(*arrays)[1]]


# HG heads a threadgroup, G SIMD groups, E elements a lane, S shares of a head, SPAN columns at a time; the last takes
# few columns and few blocks at a time, so that short cases too go round more than once
GEOMETRIES = (
    {"HG": 2, "G": 20, "E": 4, "S": 4, "SPAN": 640},
    {"HG": 2, "G": 10, "E": 8, "S": 2, "SPAN": 640},
    {"HG": 8, "G": 4, "E": 4, "S": 1, "SPAN": 320},
    {"HG": 1, "G": 8, "E": 2, "S": 2, "SPAN": 256},
)
KERNEL = Kernel(
    name="attend_values",
    path=Path(__file__).with_name("attend_values.metal"),
    inputs=VALUED,
    outputs=("out",),
    geometries=GEOMETRIES,
    plan=plan,
    reference=lambda *arrays: [ref.truth_and_slack(*arrays)[0]],
    stated=ref.stated_values,
    bound=Bound(
        "one rounding to bfloat16; before it, as parts of the sums of magnitudes: the rounding of differences of "
        "scores, exp, and the sums over columns; P and the outputs before their rotation may round the other way where "
        "they lie that near a tie; then the rotation's two products and their sum",
        ulps=0.5,
        relative=2.0**-24,
        absolute=1.0,
        tiny=3 * 2.0**-126,
        scale=_slack,
    ),
    controls=mistakes.VALUES,
    cases=trials.values_cases,
    row_inputs=("scores", "table", "window_places", "packed_places"),
    alignment=ALIGNMENT,
    choose=choose,
)
