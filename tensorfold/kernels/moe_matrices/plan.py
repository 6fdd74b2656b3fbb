"""moe_up and moe_down: the arrays they take, and the launch. Knows no routing.

Source: docs/model.md#numbers and docs/model.md#experts. Compositions of `experts` and `matvec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.experts import geometry as experts_geometry
from tensorfold.kernels.kernel import Geometry, Kernel, Launch, TemplateValue, dtype_of
from tensorfold.kernels.matvec.geometry import CHUNK, running_sums, tiling
from tensorfold.kernels.matvec.plan import checked
from tensorfold.kernels.moe_matrices.geometry import DOWN, UP, choose_down, choose_up

ROUTED = 5  # inputs of the routed part: x, ids, shard, place, origin
_TEMPLATE = ("K", "N", "PICKS", "LK", "W", "WN", "TN", "PF", "RG", "J")
_SHARED = ("R", "LK8", "SW8", "WN8", "TN8", "PF8", "DB8", "W8")


def shared_up(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """What matvec_fp8_pair takes of moe_up's inputs."""
    return *arrays[ROUTED:], arrays[0]


def shared_down(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """What matvec_fp8 takes of moe_down's inputs."""
    return tuple(arrays[ROUTED:])


def _joined(
    name: str, arrays: Sequence[Any], shared: Sequence[Any], geometry: Geometry, paired: bool, n: int, width: int,
    shared_width: int,
) -> tuple[dict[str, TemplateValue], tuple[int, int, int], int, tuple[int, int], int]:  # fmt: skip
    """(template, grid, threads, (R, picks), rows of a shared matrix); ValueError where shapes do not fit."""
    kind, of = (
        (mx.bfloat16, "rows of act_quant_fp8_round") if paired else (mx.float32, "planes of act_quant_fp8_planes")
    )
    if dtype_of(arrays[0]) != kind or dtype_of(shared[-1]) != kind:
        raise ValueError(f"{name}: x is {dtype_of(arrays[0])} and {dtype_of(shared[-1])}, expected {kind} {of}")
    weights, rows, k8, groups = checked(name, shared, shared_width)
    counts = [w.shape[0] for w in weights]
    if groups > 1 or len(set(counts)) > 1 or (paired and counts[0] != n):
        raise ValueError(f"{name}: shared matrices {[tuple(w.shape) for w in weights]} do not fit each other or n {n}")
    lk = min(geometry["LK8"], running_sums(k8, CHUNK))
    rows_apart = max(1, geometry["G"] * lk // running_sums(k8, CHUNK))
    cut = {"LK": lk, "TN": geometry["TN8"], "PF": geometry["PF8"], "DB": geometry["DB8"]}
    tiled, grid, (threads, _, _) = tiling(rows, k8, CHUNK, counts, 1, {**cut, "WN": rows_apart, "W": shared_width})
    # the plan of matvec adds an idle threadgroup for each row that the last group lacks
    tasks = (grid[0] // threads - grid[1] * tiled["R"] + rows) * grid[1]
    template, across, (routed, picks) = experts_geometry.tiling(
        name, arrays[:ROUTED], {**geometry, "WN": threads // 32}, len(weights), paired, n, width
    )
    if routed != rows:
        raise ValueError(f"{name}: {routed} rows of ids and {rows} rows of the shared expert's x")
    values = {**template, "PICKS": picks, "J": k8 if paired else counts[0]}
    merged = {key: values[key] for key in _TEMPLATE} | {key: tiled[key[:-1] if key != "R" else key] for key in _SHARED}
    groups_of_row = across * picks + -(-tasks // rows) * threads
    return merged, (groups_of_row, rows, 1), threads, (rows, picks), counts[0]


def plan_up(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16, shared_width: int = 16) -> Launch:
    """x float32 planes [R, 4, K / 16, 4], ids int32 [R, picks], shard, place uint64 [E, 2, 2], origin uint64 [1], then
    the shared expert's w1, s1, w3, s3: codes uint8 [J, K], scales uint8 [ceil(J / 32), K / 32]
    -> gate, up bfloat16 [R, picks, n] and shared gate, shared up bfloat16 [R, J].

    n, width: as for experts_up; shared_width: the largest of 16 and 8 that divides the addresses of w1 and w3.
    """
    template, grid, threads, (rows, picks), j = _joined(
        "moe_up", arrays, shared_up(arrays), geometry, False, n, width, shared_width
    )
    shapes = ((rows, picks, n),) * 2 + ((rows, j),) * 2
    return Launch(template, grid, (threads, 1, 1), shapes, (mx.bfloat16,) * 4)


def plan_down(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16, shared_width: int = 16) -> Launch:
    """x bfloat16 [R, picks, K], ids int32 [R, picks], shard, place uint64 [E, 1, 2], origin uint64 [1]
    and the shared expert's w2 uint8 [n, J], s2 uint8 [ceil(n / 32), J / 32] and its x bfloat16 [R, J]
    -> y bfloat16 [R, picks, n] and shared y bfloat16 [R, n]. Widths as in `plan_up`.

    x: exact values of act_quant_fp8_round; w2 has few rows a lane, so that what x takes to load counts.
    """
    template, grid, threads, (rows, picks), _ = _joined(
        "moe_down", arrays, shared_down(arrays), geometry, True, n, width, shared_width
    )
    return Launch(template, grid, (threads, 1, 1), ((rows, picks, n), (rows, n)), (mx.bfloat16,) * 2)


def moe_up(
    x: mx.array,
    ids: mx.array,
    shard: mx.array,
    place: mx.array,
    origin: mx.array,
    w1: mx.array,
    s1: mx.array,
    w3: mx.array,
    s3: mx.array,
    *,
    n: int,
    width: int,
    shared_width: int,
    backend: str,
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Launched on what `plan_up` describes."""
    arrays = x, ids, shard, place, origin, w1, s1, w3, s3
    gate, up, shared_gate, shared_up = KERNELS[0](*arrays, n=n, width=width, shared_width=shared_width, backend=backend)
    return gate, up, shared_gate, shared_up


def moe_down(
    x: mx.array,
    ids: mx.array,
    shard: mx.array,
    place: mx.array,
    origin: mx.array,
    w2: mx.array,
    s2: mx.array,
    shared_x: mx.array,
    *,
    n: int,
    width: int,
    shared_width: int,
    backend: str,
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan_down` describes."""
    arrays = x, ids, shard, place, origin, w2, s2, shared_x
    y, shared_y = KERNELS[1](*arrays, n=n, width=width, shared_width=shared_width, backend=backend)
    return y, shared_y


_ROUTED = ("x", "ids", "shard", "place", "origin")
_ALIGNMENT = {"x": 16, "shard": 16}


KERNELS = (
    Kernel(
        name="moe_up",
        path=Path(__file__).with_name("moe_up.metal"),
        inputs=(*_ROUTED, "w1", "s1", "w3", "s3"),
        outputs=("gate", "up", "shared_gate", "shared_up"),
        geometries=UP,
        plan=plan_up,
        alignment={**_ALIGNMENT, "w1": 8, "w3": 8},
        choose=choose_up,
    ),
    Kernel(
        name="moe_down",
        path=Path(__file__).with_name("moe_down.metal"),
        inputs=(*_ROUTED, "w2", "s2", "shared_x"),
        outputs=("y", "shared_y"),
        geometries=DOWN,
        plan=plan_down,
        alignment={**_ALIGNMENT, "w2": 8, "shared_x": 16},
        choose=choose_down,
    ),
)
