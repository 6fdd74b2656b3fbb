"""Products with a bfloat16 matrix: bfloat16 or float32 rows in, bfloat16 or float32 rows out. Knows no layer.

Source: the model's specification: float32 sums, one rounding of a bfloat16 result; a promoted weight is read as it is
stored. Float32 weights have a kernel of their own (hc_dots).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.kernels.exact import f32, load, store_bf16, store_f32, wide
from tensorfold.kernels.inputs import Draw
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch, dtype_of
from tensorfold.kernels.matvec import layout, table
from tensorfold.kernels.matvec.fp8 import OUT, SHARED, SUMS

CHUNK = 8


def plan(arrays: Sequence[Any], geometry: Geometry, *, out: str = "float32", width: int = 16) -> Launch:
    """w bfloat16 [N, K], x bfloat16 or float32 [rows, K] -> y [rows, N] of `out`.

    `width` is the largest of 16 and 8 that divides w's address.
    """
    w, x = arrays
    (n, k), rows = w.shape, x.shape[0]
    if len(x.shape) != 2 or x.shape[1] != k or k % CHUNK or not rows:
        raise ValueError(
            f"matvec_bf16: w {tuple(w.shape)}, x {tuple(x.shape)}; expected rows of {k}, a multiple of {CHUNK}"
        )
    if geometry["W"] > width:
        raise ValueError(f"matvec_bf16: loads of {geometry['W']} bytes from addresses that only {width} divides")
    tiled, grid, threads = layout.tiling(rows, k, CHUNK, (n,), 1, geometry)
    template = {"X": dtype_of(x), "Y": OUT[out], "N": n, "K": k, **tiled}
    return Launch(template, grid, threads, ((rows, n),), (OUT[out],))


def reference(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """float64 truth."""
    a, b = wide(x), wide(w)
    with np.errstate(all="ignore"):
        if np.isfinite(a).all() and np.isfinite(b).all():
            return [a @ b.T]
        return [np.stack([(row * b).sum(-1) for row in a])]


def stated(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """float32, in the order of the source."""
    y = layout.chained(load(w), load(x), CHUNK)
    return [store_bf16(y) if out == "bfloat16" else store_f32(y)]


def _magnitude(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """Roundings of a result times the sum of magnitudes."""
    k = w.shape[1]
    with np.errstate(all="ignore"):
        return [(k // layout.running_sums(k, CHUNK) + 5) * y for y in reference(np.abs(load(w)), np.abs(load(x)))]


def _case(name: str, n: int, k: int, count: int, out: str, flat: bool = True, **more: Any) -> Case:
    draw = Draw(n + k + count)
    x = draw.normal(count, k)
    return Case(name, (draw.bf16(n, k, scale=0.05), store_bf16(x) if flat else x), {"out": out}, **more)


def _special() -> Case:
    """Rows of zeros, -0, one hot, cancelling, huge, NaN and infinity; weights with NaN and infinity."""
    draw = Draw(9)
    k = 320
    x, w = draw.normal(10, k), draw.bf16(40, k)
    x[0], x[1], x[2], x[3] = 0.0, -0.0, 0.0, np.where(np.arange(k) % 2, -1.0, 1.0)
    x[2, 300], x[4, 0], x[5, 319] = -3.0, np.nan, -np.inf
    x[6] *= f32(1e18)
    x[7] *= f32(1e-18)
    w[3], w[5, 100], w[6, 0], w[7, 319] = 0x3F80, 0x7FC0, 0x7F80, 0xFF80
    return Case("special", (w, x.astype(f32)), {"out": "float32"})


def cases() -> list[Case]:
    """Every K in use; one row of w; both types of x and of y."""
    found = [
        _case("rows", 70, 512, 16, "float32", rows=True),
        _special(),
        _case("bf16", 33, 5120, 3, "bfloat16"),
        _case("x float32", 48, 256, 16, "float32", False, rows=True),
    ]
    sizes = {32: 64, 64: 48, 128: 16, 192: 1, 288: 1, 5376: 1}
    return found + [_case(f"K{k}", n, k, 1, "float32") for k, n in sizes.items()]


KERNELS = (
    Kernel(
        name="matvec_bf16",
        path=Path(__file__).with_name("matvec_bf16.metal"),
        inputs=("w", "x"),
        outputs=("y",),
        geometries=table.BF16,
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "products are exact inside a fma; K / VL roundings in a chain, 5 levels of the tree, each 2^-24 of the sum "
            "of magnitudes; one rounding of the output",
            ulps=0.5,
            absolute=2.0**-24,
            scale=_magnitude,
        ),
        controls=(
            *SHARED,
            Control("running sums in another order", SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
            Control(
                "product and sum not fused",
                "p_fma(p_float(b << 16), x.z, sum)",
                "p_add(p_mul(p_float(b << 16), x.z), sum)",
            ),
            Control(
                "halves of a chunk in another order",
                "four(b.z, b.w, hi, four(b.x, b.y, lo, acc[i * R + r]))",
                "four(b.x, b.y, lo, four(b.z, b.w, hi, acc[i * R + r]))",
            ),
            Control("reads beyond the last row of w", "last / uint(TN) * uint(TN))", "row)", backends=("host",)),
            Control("last chunks missed", "t < T; t += uint(PF)) {", "t < T - T / 2u; t += uint(PF)) {"),
        ),
        cases=cases,
        row_inputs=("x",),
        alignment={"w": 8, "x": 16},
        choose=table.choose_bf16,
    ),
)
