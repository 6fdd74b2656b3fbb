"""select_rows: the arrays it takes, and the launch. Knows no indexer.

Source: docs/model.md#indexer and docs/model.md#decisions: ties go to the lower row, NaN ranks below everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch
from tensorfold.small import constant


def plan(arrays: Sequence[Any], geometry: Geometry, k: int, block: int = 0, flags: bool = False) -> Launch:
    """scores [R, C] float32, visible [R], kept [R, ceil(C / block)], sizes [C, k] int32 -> rows int32 [R, min(k, C)].

    With `flags` the result is 1 or 0 for each score, int32 [R, C].
    """
    scores, visible, kept, sizes = arrays
    rows, c = scores.shape
    fits = tuple(visible.shape) == (rows,) and tuple(sizes.shape) == (2,) and k >= 1
    if not fits or (block and tuple(kept.shape) != (rows, -(-c // block))):
        raise ValueError(
            f"select: visible {tuple(visible.shape)}, kept {tuple(kept.shape)}, sizes {tuple(sizes.shape)} and k {k} "
            f"do not fit scores {tuple(scores.shape)} in blocks of {block}"
        )
    threads = 32 * geometry["G"]
    if c > 65535 * threads:
        raise ValueError(f"select: {c} scores, {threads} threads can count {65535 * threads}: take a wider geometry")
    template = {"FLAGS": flags, "BLOCK": block, "G": geometry["G"]}
    shape = (rows, c if flags else min(k, c))
    return Launch(template, (rows * threads, 1, 1), (threads, 1, 1), (shape,), (mx.int32,))


def select(
    scores: mx.array,
    visible: mx.array,
    k: int,
    kept: mx.array | None = None,
    block: int = 0,
    flags: bool = False,
    *,
    backend: str,
) -> mx.array:
    """Rows of the best `k` visible scores ascending, -1 padded, int32 [R, min(k, C)]; with `flags` int32 [R, C].

    `kept` int32 [R, ceil(C / block)] (of `candidate_blocks`) limits the choice: other scores count as -inf.
    """
    sizes = constant(np.int32, scores.shape[1], k)
    kept = visible if kept is None else kept
    return KERNELS[0](scores, visible, kept, sizes, backend=backend, k=k, block=block, flags=flags)[0]


KERNELS = (
    Kernel(
        name="select_rows",
        path=Path(__file__).with_name("select_rows.metal"),
        inputs=("scores", "visible", "kept", "sizes"),
        outputs=("rows",),
        geometries=({"G": 16}, {"G": 8}, {"G": 1}),
        plan=plan,
    ),
)
