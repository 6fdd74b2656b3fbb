"""matvec_*: the arrays they take, and the launch. Knows no layer.

Source: docs/model.md#numbers, linear.
x is what act_quant_fp8 gives, decoded: bfloat16 rows (act_quant_fp8_round) or float planes (act_quant_fp8_planes).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch, dtype_of
from tensorfold.kernels.matvec.geometry import (
    BF16,
    BLOCK,
    CHUNK,
    DENSE_CHUNK,
    FP8,
    QUANTISED,
    choose_bf16,
    choose_fp8,
    choose_quantised,
    running_sums,
    tiling,
)

OUT = {"bfloat16": mx.bfloat16, "float32": mx.float32}


def plan_fp8(arrays: Sequence[Any], geometry: Geometry, *, out: str = "bfloat16", width: int = 16) -> Launch:
    """w uint8 [N, K], s uint8 [ceil(N / 32), K / 32] for each matrix, then x -> y [rows, N] of `out` for each.

    x is bfloat16 [rows, G K] or float32 [rows, (G,) 4, K / 16, 4]; G > 1 groups take N / G rows of a single w each.
    `width` is the largest of 16 and 8 that divides every address of w.
    """
    weights, rows, k, groups = checked("matvec_fp8", arrays, width)
    if geometry["W"] > width:
        raise ValueError(f"matvec_fp8: loads of {geometry['W']} bytes from addresses that only {width} divides")
    counts = [w.shape[0] // groups for w in weights]
    tiled, grid, threads = tiling(rows, k, CHUNK, counts, groups, geometry)
    sizes = {"G": groups, "N": weights[0].shape[0]} if len(weights) == 1 else {f"N{i}": n for i, n in enumerate(counts)}
    template = {"X": dtype_of(arrays[-1]), "Y": OUT[out], **sizes, "K": k, **tiled}
    return Launch(template, grid, threads, tuple((rows, w.shape[0]) for w in weights), (OUT[out],) * len(weights))


def checked(name: str, arrays: Sequence[Any], width: int) -> tuple[list[Any], int, int, int]:
    """(matrices, rows, K, groups) of w and s of each matrix, then x; ValueError, with `name`, where they do not fit."""
    *pairs, x = arrays
    weights, scales = list(pairs[0::2]), pairs[1::2]
    k, rows = weights[0].shape[1], x.shape[0]
    if width not in (8, 16):
        raise ValueError(f"{name}: load width {width}, expected 8 or 16 bytes")
    if k % BLOCK or not rows:
        raise ValueError(f"{name}: K = {k} is no multiple of {BLOCK}, or x {tuple(x.shape)} has no rows")
    inner = int(np.prod(x.shape[1:]))
    groups = inner // k
    if inner % k or not groups or (groups > 1 and len(weights) > 1):
        raise ValueError(f"{name}: rows of x have {inner} elements, expected {k} (or groups of it for one matrix)")
    if dtype_of(x) == mx.float32 and tuple(x.shape[-3:]) != (4, k // CHUNK, 4):
        raise ValueError(f"{name}: float planes of x have shape {tuple(x.shape)}, expected [..., 4, {k // CHUNK}, 4]")
    for w, s in zip(weights, scales):
        expected = (-(-w.shape[0] // BLOCK), k // BLOCK)
        if w.shape[1] != k or tuple(s.shape) != expected:
            raise ValueError(
                f"{name}: w {tuple(w.shape)} with scales {tuple(s.shape)}, expected K = {k} and scales {expected}"
            )
        if s.size < 8:
            raise ValueError(f"{name}: {s.size} scales; Metal needs 8 or more, so pad w and its scales with rows")
    if groups > 1 and weights[0].shape[0] % (BLOCK * groups):
        raise ValueError(f"{name}: {weights[0].shape[0]} rows of w in {groups} groups are not whole blocks of 32")
    return weights, rows, k, groups


def plan_bf16(arrays: Sequence[Any], geometry: Geometry, *, out: str = "float32", width: int = 16) -> Launch:
    """w bfloat16 [N, K], x bfloat16 or float32 [rows, K] -> y [rows, N] of `out`.

    `width` is the largest of 16 and 8 that divides w's address.
    """
    w, x = arrays
    (n, k), rows = w.shape, x.shape[0]
    if len(x.shape) != 2 or x.shape[1] != k or k % DENSE_CHUNK or not rows:
        raise ValueError(
            f"matvec_bf16: w {tuple(w.shape)}, x {tuple(x.shape)}; expected rows of {k}, a multiple of {DENSE_CHUNK}"
        )
    if geometry["W"] > width:
        raise ValueError(f"matvec_bf16: loads of {geometry['W']} bytes from addresses that only {width} divides")
    tiled, grid, threads = tiling(rows, k, DENSE_CHUNK, (n,), 1, geometry)
    template = {"X": dtype_of(x), "Y": OUT[out], "N": n, "K": k, **tiled}
    return Launch(template, grid, threads, ((rows, n),), (OUT[out],))


def plan_quantised(arrays: Sequence[Any], geometry: Geometry, *, width: int = 16) -> Launch:
    """w uint8 [N, K], s uint8 [N / 32, K / 32], x -> y float32 [rows, 4, N / 16, 4], planes of act_quant_fp8_planes.

    x is bfloat16 [rows, G K] or float32 [rows, (G,) 4, K / 16, 4]; G groups take N / G rows of w each.
    `width` is the larger of 16 and 8 that divides the address of w. A threadgroup has as many SIMD groups as whole
    blocks of 32 rows need.
    """
    (w,), rows, k, groups = checked("matvec_fp8_quantised", arrays, width)
    n = w.shape[0]
    if n % (BLOCK * groups):
        raise ValueError(f"matvec_fp8_quantised: {n} rows of w in {groups} groups are not whole blocks of {BLOCK}")
    lanes = min(geometry["LK"], running_sums(k, CHUNK))
    high = max(1, BLOCK // (32 // lanes * geometry["TN"]))
    tiled, grid, threads = tiling(rows, k, CHUNK, [n // groups], groups, {**geometry, "WN": high, "W": width})
    template = {"X": dtype_of(arrays[-1]), "G": groups, "N": n, "K": k, **tiled}
    return Launch(template, grid, threads, ((rows, 4, n // 16, 4),), (mx.float32,))


MATVEC_BF16 = Kernel(
    name="matvec_bf16",
    path=Path(__file__).with_name("matvec_bf16.metal"),
    inputs=("w", "x"),
    outputs=("y",),
    geometries=BF16,
    plan=plan_bf16,
    alignment={"w": 8, "x": 16},
    choose=choose_bf16,
)
KERNELS = (
    Kernel(
        name="matvec_fp8",
        path=Path(__file__).with_name("matvec_fp8.metal"),
        inputs=("w", "s", "x"),
        outputs=("y",),
        geometries=FP8,
        plan=plan_fp8,
        alignment={"w": 8, "x": 16},
        choose=choose_fp8,
    ),
    Kernel(
        name="matvec_fp8_pair",
        path=Path(__file__).with_name("matvec_fp8_pair.metal"),
        inputs=("w0", "s0", "w1", "s1", "x"),
        outputs=("y0", "y1"),
        geometries=FP8,
        plan=plan_fp8,
        alignment={"w0": 8, "w1": 8, "x": 16},
        choose=choose_fp8,
    ),
    Kernel(
        name="matvec_fp8_quantised",
        path=Path(__file__).with_name("matvec_fp8_quantised.metal"),
        inputs=("w", "s", "x"),
        outputs=("y",),
        geometries=QUANTISED,
        plan=plan_quantised,
        alignment={"w": 8, "x": 16},
        choose=choose_quantised,
    ),
    MATVEC_BF16,
)


def matvec_fp8(
    weights: Sequence[tuple[mx.array, mx.array]], x: mx.array, *, backend: str, out: str = "bfloat16", width: int = 16
) -> list[mx.array]:
    """One or two (codes uint8 [N, K], scales uint8 [ceil(N / 32), K / 32]) times x: y [rows, N] of each, one launch.

    x holds decoded activations: float32 planes of act_quant_fp8_planes, or bfloat16 [rows, K]; with G K elements a row,
    a single matrix is G groups of rows with a part of x each. `width` is the largest of 16 and 8 that divides the
    address of every matrix. Raises ValueError where shapes do not fit or there are more than two matrices.
    """
    if len(weights) not in (1, 2):
        raise ValueError(f"matvec_fp8: {len(weights)} matrices, expected 1 or 2")
    arrays = [array for pair in weights for array in pair]
    return KERNELS[len(weights) - 1](*arrays, x, backend=backend, out=out, width=width)


def matvec_bf16(w: mx.array, x: mx.array, *, backend: str, out: str = "float32", width: int = 16) -> mx.array:
    """w bfloat16 [N, K] times x bfloat16 or float32 [rows, K] -> [rows, N] of `out`; `width` as for matvec_fp8."""
    return MATVEC_BF16(w, x, backend=backend, out=out, width=width)[0]


def matvec_fp8_quantised(w: mx.array, s: mx.array, x: mx.array, *, width: int, backend: str) -> mx.array:
    """Launched on what `plan_quantised` describes."""
    return KERNELS[2](w, s, x, width=width, backend=backend)[0]
