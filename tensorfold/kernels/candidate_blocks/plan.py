"""block_scores: the arrays it takes, and the launch. Knows no indexer.

Source: docs/model.md#indexer, candidates: the newest visible row's block is always in, blocks whose best
score is -inf or NaN never are. Knows no indexer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch
from tensorfold.kernels.select.plan import select
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


def candidate_blocks(scores: mx.array, visible: mx.array, block: int, topk: int, *, backend: str) -> mx.array:
    """1 for each of the best `topk` blocks, else 0: int32 [R, ceil(C / block)], the `kept` of `select`."""
    columns = constant(np.int32, scores.shape[1])
    best = KERNELS[0](scores, visible, columns, backend=backend, block=block)[0]
    return select(best, visible, topk, flags=True, backend=backend)


KERNELS = (
    Kernel(
        name="block_scores",
        path=Path(__file__).with_name("block_scores.metal"),
        inputs=("scores", "visible", "columns"),
        outputs=("best",),
        geometries=({"width": 128}, {"width": 32}, {"width": 256}),
        plan=plan,
    ),
)
