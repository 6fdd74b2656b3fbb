"""attend_scores and attend_values: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.attend.reference import BLOCK, Columns, columns_of_rows, turned
from tensorfold.proof.numerics.exact import (
    F32,
    f32,
    flush,
    fma,
    lane_sum,
    load,
    load_bf16,
    mul_flushed,
    store_bf16,
    store_f32,
)
from tensorfold.proof.numerics.functions import exp


@dataclass(frozen=True)
class Softmax:
    """P float32 [R, H, C] as bfloat16 holds it, shrink float32 [blocks][R, H], divisor float32 [R, H]."""

    p: F32
    shrink: list[F32]
    divisor: F32


def scores(q: Array, cols: Columns, scale: Array) -> F32:
    """float32 [R, H, C]: four running sums over groups of 16 elements; the products are exact."""
    rows, heads, d = q.shape
    a = load(q).reshape(rows, heads, 1, d // 64, 4, 16)
    b = cols.keys.reshape(rows, 1, -1, d // 64, 4, 16)
    acc = np.zeros((rows, heads, cols.keys.shape[1], 4), f32)
    with np.errstate(all="ignore"):
        for n in range(d // 64):
            for i in range(16):
                acc = acc + a[:, :, :, n, :, i] * b[:, :, :, n, :, i]
        return (((acc[..., 0] + acc[..., 1]) + (acc[..., 2] + acc[..., 3])) * scale[0]).astype(f32)


def softmax(s: F32, used: NDArray[np.bool_], sink: Array) -> Softmax:
    """The running maximum, P, and what divides at the end, in the stated order."""
    rows, heads, count = s.shape
    top, total = np.full((rows, heads), -1e30, f32), np.zeros((rows, heads), f32)
    p, shrink = np.zeros(s.shape, f32), []
    with np.errstate(all="ignore"):
        for start in range(0, count, BLOCK):
            live = used[:, None, start : start + BLOCK]
            part = np.where(live, s[:, :, start : start + BLOCK], f32(-np.inf))
            peak = np.maximum(top, part.max(-1))
            e = np.where(live, exp(part - peak[..., None]), f32(0))
            shrink.append(exp(top - peak))
            total = fma(total, shrink[-1], lane_sum(e[..., :32] + e[..., 32:]))
            top = peak
            rounded = load_bf16(store_bf16(e))
            p[:, :, start : start + BLOCK] = np.where(e < f32(2.0**-64), f32(0), rounded)
        return Softmax(p, shrink, (total + exp(load(sink) - top)).astype(f32))


def weighted(soft: Softmax, cols: Columns) -> F32:
    """float32 [R, H, D] before the division: a block's part column after column, then block after block; the products
    are exact."""
    rows, heads, count = soft.p.shape
    out = np.zeros((rows, heads, cols.keys.shape[-1]), f32)
    with np.errstate(all="ignore"):
        for block in range(count // BLOCK):
            part = np.zeros_like(out)
            for c in range(block * BLOCK, (block + 1) * BLOCK):
                live = cols.used[:, None, c, None]
                part = np.where(live, part + soft.p[:, :, c, None] * cols.keys[:, None, c], part)
            out = mul_flushed(out, soft.shrink[block][..., None]) + part
    return out


def attend_scores(q: Array, table: Array, *rest: Array) -> list[Array]:
    """float32 [R, H, C], in the order the source states; -infinity where a column is empty."""
    *runs, scale, sizes = rest
    cols = columns_of_rows(runs, sizes)
    found = scores(turned(q, table), cols, scale)
    found = np.where(np.abs(found) < f32(2.0**-64), f32(0), found)
    return [store_f32(np.where(cols.used[:, None], found, f32(-np.inf)))]


def attend_values(s: Array, table: Array, *rest: Array) -> list[Array]:
    """bfloat16 [R, H, D], in the order the source states."""
    *runs, sink, sizes = rest
    cols = columns_of_rows(runs, sizes)
    soft = softmax(s, cols.used, sink)
    with np.errstate(all="ignore"):
        out = store_bf16(flush(weighted(soft, cols) / soft.divisor[..., None]))
    return [turned(out, table, inverse=True)]
