"""A product with an e4m3 matrix whose bfloat16 result is quantised at once for the next matrix. Knows no layer.

Source: the model's specification, section 2, linear and act_quant. A composition of `fp8` and `act_quant_fp8`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import act_quant_fp8
from tensorfold.kernels.exact import store_bf16
from tensorfold.kernels.inputs import Draw
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch, dtype_of
from tensorfold.kernels.matvec import fp8, layout, table, trials

BLOCK = fp8.BLOCK
GEOMETRIES: tuple[Geometry, ...] = tuple(
    dict(zip(("LK", "TN", "PF", "DB"), values))
    for values in ((16, 4, 1, 0), (8, 4, 1, 0), (16, 8, 1, 0), (16, 2, 1, 0))
)


def plan(arrays: Sequence[Any], geometry: Geometry, *, width: int = 16) -> Launch:
    """w uint8 [N, K], s uint8 [N / 32, K / 32], x -> y float32 [rows, 4, N / 16, 4], planes of act_quant_fp8_planes.

    x is bfloat16 [rows, G K] or float32 [rows, (G,) 4, K / 16, 4]; G groups take N / G rows of w each.
    `width` is the larger of 16 and 8 that divides the address of w. A threadgroup has as many SIMD groups as whole
    blocks of 32 rows need.
    """
    (w,), rows, k, groups = fp8.checked("matvec_fp8_quantised", arrays, width)
    n = w.shape[0]
    if n % (BLOCK * groups):
        raise ValueError(f"matvec_fp8_quantised: {n} rows of w in {groups} groups are not whole blocks of {BLOCK}")
    lanes = min(geometry["LK"], layout.running_sums(k, fp8.CHUNK))
    high = max(1, BLOCK // (32 // lanes * geometry["TN"]))
    tiled, grid, threads = layout.tiling(
        rows, k, fp8.CHUNK, [n // groups], groups, {**geometry, "WN": high, "W": width}
    )
    template = {"X": dtype_of(arrays[-1]), "G": groups, "N": n, "K": k, **tiled}
    return Launch(template, grid, threads, ((rows, 4, n // 16, 4),), (mx.float32,))


def choose(backend: str, arrays: Sequence[Any], *, width: int = 16) -> int:
    """What the table of matvec_fp8 says, with the lanes and rows of w that a lane has; else the first."""
    wanted = table.GEOMETRIES[table.choose_fp8(backend, arrays)]
    same = (i for i, g in enumerate(GEOMETRIES) if all(g[key] == wanted[key] for key in g))
    return next(same, 0)


def reference(*arrays: Array, width: int = 16) -> list[Array]:
    """The quantiser's truth of the bfloat16 values that matvec_fp8 states."""
    return act_quant_fp8.reference_planes(fp8.stated(*arrays)[0])


def stated(*arrays: Array, width: int = 16) -> list[Array]:
    """matvec_fp8, then act_quant_fp8_planes."""
    return act_quant_fp8.stated_planes(fp8.stated(*arrays)[0])


def _case(name: str, n: int, k: int, rows: int, groups: int, flat: bool = True, width: int = 16) -> Case:
    draw = Draw(n + k + rows)
    x = trials.activations(draw, rows * groups, k, flat)
    x = x.reshape((rows, groups * k) if flat else (rows, groups, *x.shape[1:]))
    return Case(name, (*trials.matrix(draw, n, k), x), {"width": width}, rows=rows == 16)


def _scaled(name: str, low: int, high: int) -> Case:
    """Results below the quantiser's floor, or beyond bfloat16, beside ordinary ones."""
    case = _case(name, 128, 256, 5, 1, False)
    w, s, x = case.arrays
    s = s.copy()
    s[1], s[3] = low, high
    return Case(name, (w, s, x * np.float32(2.0**-16) if high < 128 else x * np.float32(2.0**64)), case.options)


def _special() -> Case:
    """NaN codes, scales 0 and 255; rows of zeros and -0, with NaN and with infinity."""
    w, s, x = (a.copy() for a in _case("special", 256, 256, 6, 2).arrays)
    w[5, 7], w[-1, -1], w[40] = 0x7F, 0xFF, np.arange(256)
    s[0, 2], s[1, 3], s[2] = 0, 255, 0
    x[0], x[1, ::2], x[2, 300], x[3, 3], x[4, 2] = 0, 0x8000, 0x7FC0, 0x7F80, 0xFF80
    return Case("special", (w, s, x), {})


def _order(name: str, k: int, whole_blocks: bool) -> Case:
    """Sums whose orders show in every code."""
    x, arrays = trials.cancelling(Draw(k), 3, k, (96,), whole_blocks)
    return Case(name, (*arrays, store_bf16(x)), {})


def cases() -> list[Case]:
    """Every size in use (N reduced at the real K), rows, groups, forms of x, special codes, orders."""
    return [
        _case("rows", 128, 1024, 16, 2, width=8),
        _case("tiny", 128, 128, 3, 4),
        _case("K4096", 64, 4096, 1, 2),
        _case("planes", 128, 512, 4, 2, False),
        _case("blocks beyond the end", 160, 64, 7, 1, False),
        _special(),
        _scaled("tiny results", 90, 95),
        _scaled("large results", 150, 220),
        _order("order in a chunk", 512, False),
        _order("order of blocks", 4096, True),
    ]


KERNELS = (
    Kernel(
        name="matvec_fp8_quantised",
        path=Path(__file__).with_name("matvec_fp8_quantised.metal"),
        inputs=("w", "s", "x"),
        outputs=("y",),
        geometries=GEOMETRIES,
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "a code times its scale is exact in float32; the bfloat16 value before it is what matvec_fp8 states and "
            "its own contract bounds",
            ulps=0.0,
        ),
        controls=(
            # mistakes inside the product and inside the quantiser are planted where they stand alone
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control("running sums in another order", fp8.SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
            Control("scales of the first group", "(part * count >> 5) * uint(K / 32)", "0u"),
            Control("x of the first group", "x + part * uint(K)", "x"),
            Control("planes of the first group", "(part * count + start + n)", "(start + n)", backends=("host",)),
            Control("not rounded before the quantiser", "p_round_bf(parts_sum", "p_load(parts_sum"),
            Control("blocks beyond the end kept", "mine && start + n < count", "mine", backends=("host",)),
            Control("rows that another group writes kept", "if (mine && start", "if (start", backends=("host",)),
            Control("last rows missed", "uint(P_TILE / 32 * R)", "uint(P_TILE / 32 * R - 1)"),
        ),
        cases=cases,
        row_inputs=("x",),
        alignment={"w": 8, "x": 16},
        choose=choose,
    ),
)
