"""matvec_*: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.matvec.stated import BLOCK
from tensorfold.proof.far import apart
from tensorfold.proof.numerics.codes import E4M3, UE8M0
from tensorfold.proof.numerics.exact import F32, f32, load, store_bf16
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case, Far


def _fp8_case(
    name: str, ns: Sequence[int], k: int, count: int, flat: bool, out: str, groups: int = 1, **more: Any
) -> Case:
    draw = Draw(k + count + sum(ns))
    arrays = [a for n in ns for a in matrix(draw, n, k)]
    x = activations(draw, count * groups, k, flat)
    if groups > 1:
        x = x.reshape((count, groups * k) if flat else (count, groups, *x.shape[1:]))
    return Case(name, (*arrays, x), {"out": out}, **more)


def _fp8_special() -> Case:
    """NaN codes, scales 0 and 255; rows of zeros and -0, one hot, with NaN and with infinity."""
    draw = Draw(3)
    w, s = matrix(draw, 96, 256)
    w[5, 7], w[40, 200], w[41] = 0x7F, 0xFF, np.arange(256)
    s[0, 2], s[1, 3], s[2] = 0, 255, 0
    s[1, 5], s[0, 6] = 41, 200
    w[64:] = finite(w[64:])
    w[70, 100] = 0x7F
    x = load(activations(draw, 4, 256, True))
    x[0, ::2], x[0, 1::2], x[1] = 0.0, -0.0, 0.0
    x[1, 100], x[2, 0], x[3, 255] = -3.0, np.nan, np.inf
    return Case("special", (w, s, planes(x)), {"out": "float32"})


SIZES = (64, 96, 2304, 8192)  # what the cases of one matrix and of several hold together is every K in use
SEVERAL = (192, 384, 768)


def matvec_fp8() -> list[Case]:
    """Rows, groups, special codes, sizes; both forms of x and of y."""
    found = [
        _fp8_case("rows", (70,), 1024, 16, False, "float32", rows=True),
        _fp8_special(),
        _fp8_case("groups", (128,), 128, 5, True, "float32", 4, rows=True),
        _fp8_case("groups bf16", (64,), 4096, 3, False, "bfloat16", 2),
    ]
    for i, k in enumerate(SIZES):
        n = 256 if k < 128 else 64 + i
        found.append(_fp8_case(f"K{k}", (n,), k, 1, bool(i % 2), "float32" if k < 4096 else "bfloat16"))
    return found


def matvec_fp8_pair() -> list[Case]:
    """Matrices of unlike sizes; one that ends inside a block."""
    return [
        _fp8_case("rows", (96, 72), 512, 9, False, "float32", rows=True),
        _fp8_case("bf16", (72, 96), 1280, 2, True, "bfloat16"),
        *(_fp8_case(f"K{k}", (64, 65), k, 1, k == 384, "float32" if k < 4096 else "bfloat16") for k in SEVERAL),
    ]


def _bf16_case(name: str, n: int, k: int, count: int, out: str, flat: bool = True, **more: Any) -> Case:
    draw = Draw(n + k + count)
    x = draw.normal(count, k)
    return Case(name, (draw.bf16(n, k, scale=0.05), store_bf16(x) if flat else x), {"out": out}, **more)


def _bf16_special() -> Case:
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


def matvec_bf16() -> list[Case]:
    """Every K in use; one row of w; both types of x and of y."""
    found = [
        _bf16_case("rows", 70, 512, 16, "float32", rows=True),
        _bf16_special(),
        _bf16_case("bf16", 33, 5120, 3, "bfloat16"),
        _bf16_case("x float32", 48, 256, 16, "float32", False, rows=True),
    ]
    sizes = {32: 64, 64: 48, 128: 16, 192: 1, 288: 1, 5376: 1}
    return found + [_bf16_case(f"K{k}", n, k, 1, "float32") for k, n in sizes.items()]


def _quantised_case(name: str, n: int, k: int, rows: int, groups: int, flat: bool = True, width: int = 16) -> Case:
    draw = Draw(n + k + rows)
    x = activations(draw, rows * groups, k, flat)
    x = x.reshape((rows, groups * k) if flat else (rows, groups, *x.shape[1:]))
    return Case(name, (*matrix(draw, n, k), x), {"width": width}, rows=rows == 16)


def _scaled_case(name: str, low: int, high: int) -> Case:
    """Results below the quantiser's floor, or beyond bfloat16, beside ordinary ones."""
    case = _quantised_case(name, 128, 256, 5, 1, False)
    w, s, x = case.arrays
    s = s.copy()
    s[1], s[3] = low, high
    return Case(name, (w, s, x * np.float32(2.0**-16) if high < 128 else x * np.float32(2.0**64)), case.options)


def _quantised_special() -> Case:
    """NaN codes, scales 0 and 255; rows of zeros and -0, with NaN and with infinity."""
    w, s, x = (a.copy() for a in _quantised_case("special", 256, 256, 6, 2).arrays)
    w[5, 7], w[-1, -1], w[40] = 0x7F, 0xFF, np.arange(256)
    s[0, 2], s[1, 3], s[2] = 0, 255, 0
    x[0], x[1, ::2], x[2, 300], x[3, 3], x[4, 2] = 0, 0x8000, 0x7FC0, 0x7F80, 0xFF80
    return Case("special", (w, s, x), {})


def _quantised_order(name: str, k: int, whole_blocks: bool) -> Case:
    """Sums whose orders show in every code."""
    x, arrays = cancelling(Draw(k), 3, k, (96,), whole_blocks)
    return Case(name, (*arrays, store_bf16(x)), {})


def matvec_fp8_quantised() -> list[Case]:
    """Every size in use (N reduced at the real K), rows, groups, forms of x, special codes, orders."""
    return [
        _quantised_case("rows", 128, 1024, 16, 2, width=8),
        _quantised_case("tiny", 128, 128, 3, 4),
        _quantised_case("K4096", 64, 4096, 1, 2),
        _quantised_case("planes", 128, 512, 4, 2, False),
        _quantised_case("blocks beyond the end", 160, 64, 7, 1, False),
        _quantised_special(),
        _scaled_case("tiny results", 90, 95),
        _scaled_case("large results", 150, 220),
        _quantised_order("order in a chunk", 512, False),
        _quantised_order("order of blocks", 4096, True),
    ]


def planes(x: F32) -> F32:
    """float32 [rows, K] -> [rows, 4, K / 16, 4]: what act_quant_fp8_planes writes."""
    return np.ascontiguousarray(np.moveaxis(x.reshape(len(x), -1, 4, 4), 2, 1))


def finite(codes: Array) -> Array:
    """Codes with a finite one for each NaN."""
    return np.where(codes & 0x7F == 0x7F, codes ^ 1, codes).astype(np.uint8)


def activations(draw: Draw, rows: int, k: int, flat: bool) -> Array:
    """Quantised activations: every finite code, scales from 2^-12 to 1."""
    values = E4M3[finite(draw.bytes(rows, k))] * np.repeat(UE8M0[draw.integers(115, 128, rows, k // BLOCK)], BLOCK, 1)
    return store_bf16(values) if flat else planes(values.astype(f32))


def matrix(draw: Draw, n: int, k: int) -> tuple[Array, Array]:
    """Every finite code, scales from 2^-17 to 4."""
    scales = draw.integers(110, 130, -(-n // BLOCK), k // BLOCK).astype(np.uint8)
    return finite(draw.bytes(n, k)), scales


def _mirrored(draw: Draw, lead: Sequence[int], low: int, high: int, at: tuple[Array, Array, Array]) -> Array:
    """Codes [.., 16] equal at the first two places of `at`; at the third such that sums of large products drop bits."""
    plus, minus, small = at
    codes = np.zeros((*lead, 16), np.uint8)
    codes[..., plus] = draw.integers(low, high, *lead, len(plus))
    codes[..., minus] = codes[..., plus[::-1]]
    codes[..., small] = draw.integers(0x08, 0x18, *lead, len(small))
    return codes


def cancelling(draw: Draw, rows: int, k: int, ns: Sequence[int], whole_blocks: bool) -> tuple[F32, list[Array]]:
    """(x [rows, K], w and s of each matrix) whose large terms cancel, so that what small ones lost on the way shows.

    Inside chunks: six large products, their mirror of the other sign, four small ones. Between blocks: a block and its
    copy of the other sign at random places, scales of a wide range.
    """
    blocks, arrays = k // BLOCK, []
    if whole_blocks:
        x = (finite(draw.bytes(rows, blocks, BLOCK)) & 0x7F).astype(np.uint8)
        place = np.argsort(draw.words(blocks), kind="stable")
        left, right = place[: blocks // 2], place[blocks // 2 : blocks // 2 * 2]
        x[:, right] = x[:, left] | 0x80
        for n in ns:
            w, s = matrix(draw, n, k)
            w = w.reshape(n, blocks, BLOCK)
            w[:, right], s[:, right] = w[:, left], s[:, left]
            arrays += [w.reshape(n, k), s]
        return E4M3[x].reshape(rows, k), arrays
    order = np.argsort(draw.words(16), kind="stable")
    at = np.sort(order[:6]), np.sort(order[6:12]), order[12:]
    x = _mirrored(draw, (rows, k // 16), 0x70, 0x7F, at)
    x[..., at[1]] |= 0x80
    for n in ns:
        codes = _mirrored(draw, (n, k // 16), 0x48, 0x50, at)
        arrays += [codes.reshape(n, k), np.full((-(-n // BLOCK), blocks), 124, np.uint8)]
    return E4M3[x].reshape(rows, k).astype(f32), arrays


def _far(case: Case) -> list[Far]:
    """A case of one row with the second half of the matrix behind 2^32 elements of it."""
    w, *scales, x = case.arrays
    hole = 2**33 // w.shape[1]
    return [Far(case, (apart(w, hole), *(apart(s, hole // BLOCK) for s in scales), x), (1, 2))]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "matvec_fp8": ("x",),
    "matvec_fp8_pair": ("x",),
    "matvec_bf16": ("x",),
    "matvec_fp8_quantised": ("x",),
}
FAR_CASES = {
    "matvec_fp8": lambda: _far(_fp8_case("far rows of w", (128,), 256, 1, True, "float32")),
    "matvec_bf16": lambda: _far(_bf16_case("far rows of w", 128, 256, 1, "float32")),
}
# real numbers of rows of matrices that have no far ones
ONCE = {
    "matvec_fp8_pair": lambda: [_fp8_case("tall matrices", (4096, 32768), 64, 1, True, "bfloat16")],
    "matvec_fp8_quantised": lambda: [_quantised_case("tall matrix", 9216, 512, 1, 1)],
}
