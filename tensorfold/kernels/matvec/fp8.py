"""Products with e4m3 matrices in 32x32 blocks: one, two or three that share x, or groups with a part of x each.

Source: the model's specification, section 2, linear. Knows no layer: names in `table.py` are shapes alone.
x is what act_quant_fp8 gives, decoded: bfloat16 rows (act_quant_fp8_round) or float planes (act_quant_fp8_planes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.codes import E4M3, UE8M0
from tensorfold.kernels.exact import F32, load, store_bf16, store_f32, wide
from tensorfold.kernels.inputs import Draw
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch, dtype_of
from tensorfold.kernels.matvec import layout, table, trials

BLOCK, CHUNK = 32, 16
OUT = {"bfloat16": mx.bfloat16, "float32": mx.float32}


def plan(arrays: Sequence[Any], geometry: Geometry, *, out: str = "bfloat16", width: int = 16) -> Launch:
    """w uint8 [N, K], s uint8 [ceil(N / 32), K / 32] for each matrix, then x -> y [rows, N] of `out` for each.

    x is bfloat16 [rows, G K] or float32 [rows, (G,) 4, K / 16, 4]; G > 1 groups take N / G rows of a single w each.
    `width` is the largest of 16 and 8 that divides every address of w.
    """
    weights, rows, k, groups = checked("matvec_fp8", arrays, width)
    if geometry["W"] > width:
        raise ValueError(f"matvec_fp8: loads of {geometry['W']} bytes from addresses that only {width} divides")
    counts = [w.shape[0] // groups for w in weights]
    tiled, grid, threads = layout.tiling(rows, k, CHUNK, counts, groups, geometry)
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


def _rows(x: Array, k: int) -> Array:
    """x as loaded, [rows, G, K]."""
    if x.dtype == np.uint16:
        return x.reshape(len(x), -1, k)
    return np.moveaxis(x.reshape(len(x), -1, 4, k // CHUNK, 4), 2, 3).reshape(len(x), -1, k)


def _scaled(s: Array, n: int, each: int) -> F32:
    """Scale values by row of w and run of K: [n, K / each]."""
    return np.repeat(np.repeat(UE8M0[s], BLOCK, 0)[:n], BLOCK // each, 1)


def reference(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """float64 truth."""
    *pairs, x = arrays
    found = []
    for w, s in zip(pairs[0::2], pairs[1::2]):
        n, k = w.shape
        v = wide(_rows(x, k))
        with np.errstate(all="ignore"):
            values = E4M3[w].astype(np.float64) * _scaled(s, n, 1)
            parts = values.reshape(v.shape[1], -1, k)
            y = [v[:, g] @ part.T if np.isfinite(part).all() and np.isfinite(v).all() else _slowly(v[:, g], part)
                 for g, part in enumerate(parts)]  # fmt: skip
        found.append(np.concatenate(y, -1))
    return found


def _slowly(v: Array, w: Array) -> Array:
    """A product that keeps NaN and infinity to their own rows."""
    return np.stack([(row * w).sum(-1) for row in v])


def stated(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """float32, in the order of fp8.h and tile.h."""
    *pairs, x = arrays
    store = store_bf16 if out == "bfloat16" else store_f32
    found = []
    for w, s in zip(pairs[0::2], pairs[1::2]):
        n, k = w.shape
        v = load(_rows(x, k))
        codes, scales = E4M3[w].reshape(v.shape[1], -1, k), _scaled(s, n, CHUNK).reshape(v.shape[1], -1, k // CHUNK)
        y = [layout.blocked(codes[g], scales[g], v[:, g], CHUNK) for g in range(v.shape[1])]
        found.append(store(np.concatenate(y, -1)))
    return found


def magnitude(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """Roundings in a row times the sum of magnitudes."""
    *pairs, x = arrays
    k = pairs[0].shape[1]
    steps = k // CHUNK // layout.running_sums(k, CHUNK)
    positive = [a & 0x7F if i % 2 == 0 else a for i, a in enumerate(pairs)]
    x = x & 0x7FFF if x.dtype == np.uint16 else np.abs(x)
    return [(CHUNK + steps + 5) * y for y in reference(*positive, x, out=out)]


def _case(name: str, ns: Sequence[int], k: int, count: int, flat: bool, out: str, groups: int = 1, **more: Any) -> Case:
    draw = Draw(k + count + sum(ns))
    arrays = [a for n in ns for a in trials.matrix(draw, n, k)]
    x = trials.activations(draw, count * groups, k, flat)
    if groups > 1:
        x = x.reshape((count, groups * k) if flat else (count, groups, *x.shape[1:]))
    return Case(name, (*arrays, x), {"out": out}, **more)


def _special() -> Case:
    """NaN codes, scales 0 and 255; rows of zeros and -0, one hot, with NaN and with infinity."""
    draw = Draw(3)
    w, s = trials.matrix(draw, 96, 256)
    w[5, 7], w[40, 200], w[41] = 0x7F, 0xFF, np.arange(256)
    s[0, 2], s[1, 3], s[2] = 0, 255, 0
    s[1, 5], s[0, 6] = 41, 200
    w[64:] = trials.finite(w[64:])
    w[70, 100] = 0x7F
    x = load(trials.activations(draw, 4, 256, True))
    x[0, ::2], x[0, 1::2], x[1] = 0.0, -0.0, 0.0
    x[1, 100], x[2, 0], x[3, 255] = -3.0, np.nan, np.inf
    return Case("special", (w, s, trials.planes(x)), {"out": "float32"})


SIZES = (64, 96, 2304, 8192)  # what the cases of one matrix and of several hold together is every K in use
SEVERAL = {2: (192, 384, 768), 3: (6144, 15360)}


def cases() -> list[Case]:
    """Rows, groups, special codes, sizes; both forms of x and of y."""
    found = [
        _case("rows", (70,), 1024, 16, False, "float32", rows=True),
        _special(),
        _case("groups", (128,), 128, 5, True, "float32", 4, rows=True),
        _case("groups bf16", (64,), 4096, 3, False, "bfloat16", 2),
    ]
    for i, k in enumerate(SIZES):
        n = 256 if k < 128 else 64 + i
        found.append(_case(f"K{k}", (n,), k, 1, bool(i % 2), "float32" if k < 4096 else "bfloat16"))
    return found


def several(m: int) -> list[Case]:
    """Matrices of unlike sizes; one that ends inside a block."""
    ns = (96, 72, 33)[:m]
    return [
        _case("rows", ns, 512, 9, False, "float32", rows=True),
        _case("bf16", ns[::-1], 1280 if m == 2 else 5120, 2, True, "bfloat16"),
        *(_case(f"K{k}", (64, 65, 40)[:m], k, 1, k == 384, "float32" if k < 4096 else "bfloat16") for k in SEVERAL[m]),
    ]


_WHY = (
    "products are exact; 16 roundings in a chunk, one a running sum's step, 5 levels of the tree, each 2^-24 of the "
    "sum of magnitudes; one rounding of the output"
)
# mistakes of tile.h: in what every kernel takes from it, and in the end that writes sums
TILES = (
    Control("halves of a load swapped", "lo = q[0], hi = q[1];", "lo = q[1], hi = q[0];", file="tile.h"),
    Control(
        "last group of rows not drawn back", "p_minu(group * uint(R), rows - uint(R))", "group * uint(R)",
        file="tile.h", backends=("host",),
    ),
    Control("SIMD group left out", "d < SW; d = d * 2", "d < SW / 2; d = d * 2", file="tile.h"),
)  # fmt: skip
SHARED = (
    *TILES,
    Control("barrier dropped", "P_BARRIER();", "", file="tile.h", backends=("host",)),
    Control("rows of w beyond the end kept", "if (mine && n < count)", "if (mine)", file="tile.h", backends=("host",)),
)
FP8 = (
    Control(
        "two neighbours swapped in the chain",
        "a = p_fma(wv[i].y, xv.y, a);\n            a = p_fma(wv[i].z, xv.z, a);",
        "a = p_fma(wv[i].z, xv.z, a);\n            a = p_fma(wv[i].y, xv.y, a);",
        file="fp8.h",
    ),
    Control("scale of another block", "sp[(uint(f * VL) + v) >> 1]", "sp[(uint(f * VL) + v) >> 2]", file="fp8.h"),
    Control("reads beyond the last row of w", "last / uint(TN) * uint(TN))", "row)", file="fp8.h", backends=("host",)),
)


def kernel(m: int, name: str, controls: tuple[Control, ...], made: Any) -> Kernel:
    """The kernel of m matrices."""
    names = [""] if m == 1 else [str(i) for i in range(m)]
    weights = tuple(f"{a}{i}" for i in names for a in "ws")
    return Kernel(
        name=name,
        path=Path(__file__).with_name(f"{name}.metal"),
        inputs=(*weights, "x"),
        outputs=tuple(f"y{i}" for i in names),
        geometries=table.GEOMETRIES,
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(_WHY, ulps=0.5, absolute=2.0**-24, scale=magnitude),
        controls=(*SHARED, *FP8, *controls),
        cases=made,
        row_inputs=("x",),
        alignment={**{w: 8 for w in weights if w[0] == "w"}, "x": 16},
        choose=table.choose_fp8,
    )


SUMS = "simd % uint(SW) * uint(LK) + lane % uint(LK)"
KERNELS = (
    kernel(
        1,
        "matvec_fp8",
        (
            Control("running sums in another order", SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
            Control("scales of the first group", "(part * count >> 5) * uint(K / 32)", "0u"),
            Control("x of the first group", "x + part * uint(K)", "x"),
            Control("NaN scale as infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
            Control("NaN code as 480", "((nan >> 1) & 0x40004000u)", "0u", file="wide.h", backends=("host", "metal")),
            Control("last chunks missed", "t < T; t += uint(PF)) {", "t < T - T / 2u; t += uint(PF)) {", file="fp8.h"),
        ),
        cases,
    ),
    kernel(
        2,
        "matvec_fp8_pair",
        (
            Control("scales of the first matrix", "tile < end0 ? s0 : s1", "s0"),
            Control("tiles counted from the first", "tile : tile - end0)", "tile : tile)"),
        ),
        partial(several, 2),
    ),
    kernel(
        3,
        "matvec_fp8_triple",
        (
            Control("scales of the second matrix", "tile < end1 ? s1 : s2", "s1", backends=("host",)),
            Control("third counted from the second", "tile - end0 : tile - end1", "tile - end0 : tile - end0"),
        ),
        partial(several, 3),
    ),
)
