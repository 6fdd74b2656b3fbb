"""Attention with a sink over packed window and compressed rows: plan, geometries, bound, a thin call. Knows no slot.

Source: the model's specification, sections 5 and 10: blocks of 64 columns, running maximum, P rounded to bfloat16;
section 2 for the rotary embedding of queries and its inverse on outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.attend import mistakes, trials
from tensorfold.kernels.attend import reference as ref
from tensorfold.kernels.exact import f32
from tensorfold.kernels.kernel import Bound, Geometry, Kernel, Launch

WIDTHS = (64, 128, 256, 512)  # of a head: SIMD groups share them evenly, and 32 KiB hold what meets of them


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """q bfloat16 [R, H, D], table float32 [R, RD / 2, 2], window rows [N and M, D + D / 32] and compressed rows
    [L and P, D / 2 + D / 16] uint8, places [R, W] and [R, K] int32, sink [H], scale [1] float32, sizes [N, W, L, K]
    -> out bfloat16 [R, H, D].

    K = 0 in `sizes` leaves the compressed rows out, whatever their places.
    """
    q, table, window, window_new, window_places, packed, packed_new, packed_places, sink, scale, sizes = arrays
    rows, heads, d = q.shape
    if d not in WIDTHS:
        raise ValueError(f"attend: heads of {d} elements, expected {', '.join(map(str, WIDTHS))}")
    near, far = d + d // 32, d // 2 + d // 16
    fits = window.shape[1] == window_new.shape[1] == near and packed.shape[1] == packed_new.shape[1] == far
    turned = 2 * table.shape[1]
    angles = tuple(table.shape) == (rows, turned // 2, 2) and turned <= d
    lists = window_places.shape[0] == packed_places.shape[0] == rows and tuple(sink.shape) == (heads,)
    if not fits or not angles or not lists or tuple(sizes.shape) != (4,) or tuple(scale.shape) != (1,):
        raise ValueError(
            f"attend: table {tuple(table.shape)}, window {tuple(window.shape)}, new {tuple(window_new.shape)}, "
            f"places {tuple(window_places.shape)}, compressed {tuple(packed.shape)}, new {tuple(packed_new.shape)}, "
            f"places {tuple(packed_places.shape)} and "
            f"sink {tuple(sink.shape)} do not fit q {tuple(q.shape)}"
        )
    each = next(n for n in range(min(geometry["HG"], heads), 0, -1) if heads % n == 0)
    groups, shares = geometry["G"], min(geometry["S"], d // 64)
    lanes = d // shares // 32  # elements of a lane, were there one SIMD group to a block
    template = {
        "H": heads, "D": d, "RD": turned, "HG": each, "G": groups, "E": max(min(geometry["E"], lanes), lanes // groups),
        "S": shares, "NC": geometry["NC"], "SPAN": geometry["SPAN"], "WIDE": d % 512 == 0,
    }  # fmt: skip
    threads = 32 * groups
    grid = (heads // each * shares * threads, rows, 1)
    return Launch(template, grid, (threads, 1, 1), ((rows, heads, d),), (mx.bfloat16,))


# HG heads a threadgroup, G SIMD groups, E elements a lane, S shares of a head, NC compressed columns a thread scores,
# SPAN columns at a time, few in the last so that short cases too go round more than once; with G = 16 a thread may use
# 128 registers
GEOMETRIES = (
    {"HG": 8, "G": 8, "E": 2, "S": 1, "NC": 1, "SPAN": 320},
    {"HG": 4, "G": 8, "E": 4, "S": 1, "NC": 2, "SPAN": 640},
    {"HG": 2, "G": 8, "E": 8, "S": 1, "NC": 2, "SPAN": 640},
    {"HG": 1, "G": 16, "E": 16, "S": 1, "NC": 2, "SPAN": 640},
    {"HG": 1, "G": 8, "E": 8, "S": 2, "NC": 1, "SPAN": 640},
    {"HG": 1, "G": 8, "E": 8, "S": 2, "NC": 1, "SPAN": 128},
)
_CUDA_CORES = 132  # threadgroups that run beside each other, one a core


def choose(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows: fewer heads a threadgroup, so that every core has one; many: more heads share a decoded row."""
    rows, heads, _ = arrays[0].shape
    if backend == "metal":
        return 4 if rows * heads <= 160 else 1
    if backend == "cuda":
        return next((i for i, each in ((3, 1), (2, 4), (1, 8)) if rows * heads <= _CUDA_CORES * each), 0)
    return 0


Run = tuple[mx.array, mx.array, mx.array]


def attend(
    q: mx.array, table: mx.array, sink: mx.array, window: Run, packed: Run | None = None, *, backend: str
) -> mx.array:
    """Attended bfloat16 [R, H, D] of queries before their rotation, rotated back; `table` float32 [R, RD / 2, 2].

    A run of columns is (cache, this round's rows, places), an empty place is -1.
    """
    rows, _, d = q.shape
    k = packed[2].shape[1] if packed else 0
    if packed is None or not k:
        none = mx.zeros((1, d // 2 + d // 16), mx.uint8)
        packed = none, none, mx.full((rows, 1), -1, mx.int32)
    cache, fresh, places = (*packed[:2], packed[2])
    fresh = fresh if fresh.size else cache[:1]
    sizes = mx.array([window[0].shape[0], window[2].shape[1], cache.shape[0], k], mx.int32)
    scale = mx.array(np.array([float(d) ** -0.5], f32))
    return KERNELS[0](q, table, *window, cache, fresh, places, sink, scale, sizes, backend=backend)[0]


KERNELS = (
    Kernel(
        name="attend",
        path=Path(__file__).with_name("attend.metal"),
        inputs=trials.NAMES,
        outputs=("out",),
        geometries=GEOMETRIES,
        plan=plan,
        reference=ref.reference,
        stated=ref.stated,
        bound=Bound(
            "one rounding to bfloat16; before it, as parts of the sums of magnitudes: the rounding of scores (chains "
            "of D / 4), exp, and the sums over columns; P and the outputs before their rotation may round the other "
            "way where they lie that near a tie; then the rotation's two products and their sum",
            ulps=0.5,
            relative=2.0**-24,
            absolute=1.0,
            tiny=3 * 2.0**-126,
            scale=ref.slack,
        ),
        controls=mistakes.CONTROLS,
        cases=trials.cases,
        row_inputs=("q", "table", "window_places", "packed_places"),
        alignment={"window": 16, "window_new": 16, "packed": 16, "packed_new": 16},
        choose=choose,
    ),
)
