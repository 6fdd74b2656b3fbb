"""The scores of attention: plan, geometries, bound. Knows no softmax.

Source: the model's specification, section 5; section 2 for the rotary embedding of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.attend import mistakes, trials
from tensorfold.kernels.attend import reference as ref
from tensorfold.kernels.attend.runs import ALIGNMENT, SCORED, checked, columns_of, heads_together
from tensorfold.kernels.kernel import Array, Bound, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """q bfloat16 [R, H, D], table float32 [R, RD / 2, 2], rows and places as `runs.checked` says, scale float32 [1],
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


def choose(backend: str, arrays: Sequence[Any]) -> int:
    """Many rows: more columns a lane share what is read of queries; few: more lanes."""
    return int(arrays[0].shape[0] >= 16)


def _size(*arrays: Array) -> list[Array]:
    return [ref.scores_and_size(*arrays)[1]]


# HG heads a threadgroup, G SIMD groups, NC compressed columns a thread, AT groups of a row at a time
GEOMETRIES = (
    {"HG": 8, "G": 8, "NC": 1, "AT": 2},
    {"HG": 8, "G": 8, "NC": 2, "AT": 1},
    {"HG": 4, "G": 4, "NC": 1, "AT": 2},
)
KERNEL = Kernel(
    name="attend_scores",
    path=Path(__file__).with_name("attend_scores.metal"),
    inputs=SCORED,
    outputs=("scores",),
    geometries=GEOMETRIES,
    plan=plan,
    reference=lambda *arrays: [ref.scores_and_size(*arrays)[0]],
    stated=ref.stated_scores,
    bound=Bound(
        "exact products; four chains of D / 4 additions, D at most 512, two levels, a product: as many roundings of "
        "half a unit of the sum of magnitudes; below 2^-64 nothing is kept",
        ulps=0.0,
        absolute=(512 / 4 + 4) * 2.0**-24,
        tiny=2.0**-64,
        scale=_size,
    ),
    controls=mistakes.SCORES,
    cases=trials.scores_cases,
    row_inputs=("q", "table", "window_places", "packed_places"),
    alignment={**ALIGNMENT, "q": 16},
    choose=choose,
)
