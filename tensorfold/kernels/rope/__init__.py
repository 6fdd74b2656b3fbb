"""Rotary position embedding: the kernel that turns pairs, by a table from the host. Knows no layer and no cache.

Source: the model's specification, section 2: adjacent pairs of the last dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, load, mul_flushed, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

__all__ = ["KERNELS", "turns"]


def plan(arrays: Sequence[Any], geometry: Geometry, inverse: bool = False) -> Launch:
    """x [R, H, D] bfloat16, table [P, RD/2, 2] float32, positions [R] int32 -> y [R, H, D] bfloat16."""
    x, table, positions = arrays
    rows, heads, d = x.shape
    turned = 2 * table.shape[1]
    if turned > d or d % 2 or positions.shape != (rows,):
        raise ValueError(
            f"rope: x {tuple(x.shape)}, table {tuple(table.shape)} and positions {tuple(positions.shape)} do not fit"
        )
    width, height = geometry["width"], min(geometry["height"], heads)
    height = height if heads % height == 0 else 1
    grid = (-(-d // 2 // width) * width, heads, rows)
    template = {"H": heads, "D": d, "RD": turned, "INVERSE": inverse}
    return Launch(template, grid, (width, height, 1), ((rows, heads, d),), (mx.bfloat16,))


def _turn(
    x: Array, table: Array, positions: Array, inverse: bool, product: Callable[[Array, Array], Array] = np.multiply
) -> Array:
    turned = 2 * table.shape[1]
    y = x.copy()
    c, s = table[positions][:, None, :, 0], table[positions][:, None, :, 1]
    s = -s if inverse else s
    a, b = x[..., -turned::2], x[..., x.shape[-1] - turned + 1 :: 2]
    with np.errstate(all="ignore"):
        y[..., -turned::2], y[..., y.shape[-1] - turned + 1 :: 2] = (
            product(a, c) - product(b, s),
            product(a, s) + product(b, c),
        )
    return y


def reference(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    """float64 truth, from the given table."""
    return [_turn(wide(x), wide(table), positions, inverse)]


def stated(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    """float32: both products rounded and flushed, then their sum."""
    return [store_bf16(_turn(load(x), table, positions, inverse, mul_flushed))]


def _magnitude(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    v = np.abs(wide(x))
    return [np.maximum(v, np.where(np.arange(v.shape[-1]) % 2, np.roll(v, 1, -1), np.roll(v, -1, -1)))]


def turns(count: int, dims: int) -> Array:
    """Cosine and sine of positions below `count`, float32 [count, dims / 2, 2]; the network has tables of its own."""
    angles = np.outer(np.arange(count), 10000.0 ** (-np.arange(0, dims, 2) / dims))
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(f32)


def cases() -> list[Case]:
    """Head shapes of every config, both directions; positions out of order and repeated; extremes."""
    found = []
    for heads, d, turned in ((8, 64, 16), (1, 64, 64), (64, 512, 64), (1, 512, 64), (32, 128, 64), (3, 48, 32)):
        draw = inputs.Draw(heads * d)
        rows = 16 if d in (48, 128) else 2
        table = turns(40, turned)
        positions = draw.integers(0, 40, rows)
        for inverse in (False, True):
            found.append(
                Case(
                    f"{heads}x{d}/{turned}{' inverse' if inverse else ''}",
                    (draw.bf16(rows, heads, d), table, positions),
                    {"inverse": inverse},
                    rows=d == 48 or (d == 128 and not inverse),
                )
            )
    wild = inputs.extremes_bf16(64).reshape(16, 1, 64)
    found.append(Case("extreme", (wild, turns(16, 64), np.arange(16, dtype=np.int32))))
    return found


# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control("sine's sign", "p_sub(p_mulz(a, c), p_mulz(b, s))", "p_add(p_mulz(a, c), p_mulz(b, s))", file="turn.h"),
    Control("products fused", "p_add(p_mulz(a, s), p_mulz(b, c))", "p_fma(a, s, p_mulz(b, c))", file="turn.h"),
)

KERNELS = (
    Kernel(
        name="rope",
        path=Path(__file__).with_name("rope.metal"),
        inputs=("x", "table", "positions"),
        outputs=("y",),
        geometries=(
            {"width": 32, "height": 1},
            {"width": 32, "height": 8},
            {"width": 64, "height": 1},
            {"width": 256, "height": 1},
        ),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp); two rounded products of magnitude at most max(|a|, |b|) and their "
            "rounded sum: 3 * 2^-24 of that magnitude, which a half ulp of bfloat16 can still follow",
            ulps=0.5,
            relative=2.0**-24,
            absolute=3 * 2.0**-24,
            tiny=3 * 2.0**-126,
            scale=_magnitude,
        ),
        controls=(
            *CONTROLS,
            Control(
                "pairs start one early",
                "pair >= uint((D - RD) / 2)) {",
                "pair + 1u >= uint((D - RD) / 2)) {",
                backends=("host",),
            ),
            Control("half a block per pair", "(pair - uint((D - RD) / 2))) * 2u", "(pair - uint((D - RD) / 2))) * 1u"),
            Control("edge threads kept", "if (pair >= uint(D / 2)) return;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("x", "positions"),
    ),
)
