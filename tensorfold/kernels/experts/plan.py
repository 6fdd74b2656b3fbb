"""experts_up and experts_down: the arrays they take, and the launch. Knows no routing.

Source: docs/model.md#numbers and docs/model.md#experts: products of decoded values, float32 sums, one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.experts.geometry import GEOMETRIES, choose_down, choose_up, tiling
from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan_up(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16) -> Launch:
    """x [R, K] bfloat16 or [R, 4, K / 16, 4] float32, ids int32 [R, picks] (0 .. E - 1), shard uint8 bytes,
    place uint64 [E, 2, 2], origin uint64 [1] -> gate, up bfloat16 [R, picks, n].

    x: exact values of act_quant_fp8, as act_quant_fp8_round or act_quant_fp8_planes writes them and matvec_fp8 reads
    them, so that the routed and the shared experts read one array. They need no decoding in the inner loop.
    place: for w1, then w3, the byte offsets in the file of codes [n, K / 2] (even index in the low nibble) and of
    scales [n, K / 32]; origin: where in that file `shard` begins, in bytes. width: the largest of 16, 8 and 4 that
    divides the address of every expert's codes. `shard` may have any shape, since a dimension is limited to 2^31.
    A row of a result has the same bits for any rows beside it, geometry, width and place.
    """
    template, across, (rows, picks) = tiling("experts_up", arrays, geometry, 2, False, n, width)
    order = ("X", "K", "N", "PICKS", "LK", "W", "WN", "TN", "PF", "RG")
    template = {name: picks if name == "PICKS" else template[name] for name in order}
    shape, threads = (rows, picks, n), 32 * geometry["WN"]
    return Launch(template, (across, rows * picks, 1), (threads, 1, 1), (shape, shape), (mx.bfloat16, mx.bfloat16))


def plan_down(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16) -> Launch:
    """x [R, picks, K] bfloat16 or [R, picks, 4, K / 16, 4] float32, ids int32 [R, picks], shard,
    place uint64 [E, 1, 2], origin uint64 [1] -> y bfloat16 [R, picks, n]; everything else as in `plan_up`."""
    template, across, (rows, picks) = tiling("experts_down", arrays, geometry, 1, True, n, width)
    threads = 32 * geometry["WN"]
    return Launch(template, (across, rows * picks, 1), (threads, 1, 1), ((rows, picks, n),), (mx.bfloat16,))


def experts_up(
    x: mx.array, ids: mx.array, shard: mx.array, place: mx.array, origin: mx.array, *, n: int, width: int, backend: str
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan_up` describes."""
    gate, up = KERNELS[0](x, ids, shard, place, origin, n=n, width=width, backend=backend)
    return gate, up


def experts_down(
    x: mx.array, ids: mx.array, shard: mx.array, place: mx.array, origin: mx.array, *, n: int, width: int, backend: str
) -> mx.array:
    """Launched on what `plan_down` describes."""
    return KERNELS[1](x, ids, shard, place, origin, n=n, width=width, backend=backend)[0]


_INPUTS = ("x", "ids", "shard", "place", "origin")
_ALIGNMENT = {"x": 16, "shard": 16}


KERNELS = (
    Kernel(
        name="experts_up",
        path=Path(__file__).with_name("experts_up.metal"),
        inputs=_INPUTS,
        outputs=("gate", "up"),
        geometries=GEOMETRIES,
        plan=plan_up,
        alignment=_ALIGNMENT,
        choose=choose_up,
    ),
    Kernel(
        name="experts_down",
        path=Path(__file__).with_name("experts_down.metal"),
        inputs=_INPUTS,
        outputs=("y",),
        geometries=GEOMETRIES,
        plan=plan_down,
        alignment=_ALIGNMENT,
        choose=choose_down,
    ),
)
