"""Candidate blocks of a row: the best score of each block, and with `select` the flags of the best blocks.

Source: the model's specification, section 5, candidates: the newest visible row's block is always in, blocks whose best
score is -inf or NaN never are. Knows no indexer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, load, store_f32
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.select import select
from tensorfold.small import constant


def plan(arrays: Sequence[Any], geometry: Geometry, block: int) -> Launch:
    """scores [R, C] float32, visible [R] and columns [C] int32 -> best float32 [R, ceil(C / block)]."""
    scores, visible, columns = arrays
    rows, c = scores.shape
    if tuple(visible.shape) != (rows,) or tuple(columns.shape) != (1,) or block < 1:
        raise ValueError(
            f"block_scores: visible {tuple(visible.shape)}, columns {tuple(columns.shape)} and block {block} "
            f"do not fit scores {tuple(scores.shape)}"
        )
    blocks, width = -(-c // block), geometry["width"]
    grid = (-(-blocks // width) * width, rows, 1)
    return Launch({"BLOCK": block}, grid, (width, 1, 1), ((rows, blocks),), (mx.float32,))


def reference(scores: Array, visible: Array, columns: Array, block: int) -> list[Array]:
    """Block by block; a NaN makes its block NaN."""
    v = load(scores)
    rows, c = v.shape
    out = np.full((rows, -(-c // block)), np.nan, f32)
    for r in range(rows):
        n = min(max(int(visible[r]), 0), c)
        for b in range(-(-n // block)):
            out[r, b] = np.max(v[r, b * block : min((b + 1) * block, n)]) + f32(0)
        if n:
            out[r, (n - 1) // block] = np.inf
    return [store_f32(out)]


def candidate_blocks(scores: mx.array, visible: mx.array, block: int, topk: int, *, backend: str) -> mx.array:
    """1 for each of the best `topk` blocks, else 0: int32 [R, ceil(C / block)], the `kept` of `select`."""
    columns = constant(np.int32, scores.shape[1])
    best = KERNELS[0](scores, visible, columns, backend=backend, block=block)[0]
    return select(best, visible, topk, flags=True, backend=backend)


def cases() -> list[Case]:
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


KERNELS = (
    Kernel(
        name="block_scores",
        path=Path(__file__).with_name("block_scores.metal"),
        inputs=("scores", "visible", "columns"),
        outputs=("best",),
        geometries=({"width": 128}, {"width": 32}, {"width": 256}),
        plan=plan,
        reference=reference,
        stated=reference,
        bound=Bound("a maximum of float32 values is one of them", ulps=0.0),
        controls=(
            Control("newest block not forced", "p_inf() : top;", "top : top;"),
            Control("block after the newest forced", "first < n && n <= first", "first <= n && n < first"),
            Control("invisible scores looked at", "p_minu(first + uint(BLOCK), n)", "p_minu(first + uint(BLOCK), c)"),
            Control("NaN passed over", "p_isnan(v) ? v : p_max(top, v)", "p_max(top, v)"),
            Control("last column of a block missed", "i < last; i++", "i + 1u < last; i++"),
            Control("negative zero kept", "p_add(top, 0.0f)", "top"),
            Control(
                "scores read past the last", "p_minu(first + uint(BLOCK), n)", "first + uint(BLOCK)", backends=("host",)
            ),
            Control("edge threads kept", "if (block >= blocks) return;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("scores", "visible"),
    ),
)
