"""pick_parts and pick: the arrays they take, and the launch. Knows no filter.

Source: the engine's pick, for rows without bias, penalty, filters and log-probabilities: the same noise, the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch

PART = 1024


def plan_pick_parts(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """logits float32 [R, V], temperature float32 [R] (0 is greedy), seed uint32 [R, 2] (low, high), position int32 [R]
    (>= 0, of the token being drawn) -> parts uint32 [R, ceil(V / 1024), 3]: key of a part's best score, its token, 1
    where a logit of the part is NaN or infinite."""
    logits, temperature, seed, position = arrays
    rows, vocab = logits.shape
    shapes = tuple(temperature.shape), tuple(seed.shape), tuple(position.shape)
    if shapes != ((rows,), (rows, 2), (rows,)):
        raise ValueError(
            f"pick_parts: temperature, seed and position have shapes {shapes}, expected {((rows,), (rows, 2), (rows,))}"
        )
    parts, threads = -(-vocab // PART), 32 * geometry["G"]
    return Launch(
        {"V": vocab, "G": geometry["G"]}, (parts * threads, rows, 1), (threads, 1, 1), ((rows, parts, 3),), (mx.uint32,)
    )


def plan_pick(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """parts uint32 [R, P, 3] of pick_parts -> ids int32 [R], finite bool [R] (false: the id means nothing)."""
    (given,) = arrays
    if len(given.shape) != 3 or given.shape[2] != 3:
        raise ValueError(f"pick: parts {tuple(given.shape)}, expected [R, P, 3]")
    rows, count, _ = given.shape
    return Launch({"COUNT": count}, (32 * rows, 1, 1), (32, 1, 1), ((rows,), (rows,)), (mx.int32, mx.bool_))


def pick_parts(
    logits: mx.array, temperature: mx.array, seed: mx.array, position: mx.array, *, backend: str
) -> mx.array:
    """Launched on what `plan_pick_parts` describes."""
    return KERNELS[0](logits, temperature, seed, position, backend=backend)[0]


def pick(parts: mx.array, *, backend: str) -> tuple[mx.array, mx.array]:
    """Launched on what `plan_pick` describes."""
    ids, finite = KERNELS[1](parts, backend=backend)
    return ids, finite


KERNELS = (
    Kernel(
        name="pick_parts",
        path=Path(__file__).with_name("pick_parts.metal"),
        inputs=("logits", "temperature", "seed", "position"),
        outputs=("parts",),
        geometries=({"G": 8}, {"G": 1}, {"G": 4}),
        plan=plan_pick_parts,
    ),
    Kernel(
        name="pick",
        path=Path(__file__).with_name("pick.metal"),
        inputs=("parts",),
        outputs=("ids", "finite"),
        geometries=({},),
        plan=plan_pick,
    ),
)
