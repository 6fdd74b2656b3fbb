"""Trial inputs of products with e4m3 matrices: random ones, and sums that hang on their order. Knows no plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.kernels.codes import E4M3, UE8M0
from tensorfold.kernels.exact import F32, f32, store_bf16
from tensorfold.kernels.inputs import Draw
from tensorfold.kernels.kernel import Array

BLOCK = 32


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
