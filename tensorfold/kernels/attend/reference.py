"""Attention over packed rows in numpy: float64 truths, stated float32 order, what rounding may cost. Knows no kernel.

The truth rounds to bfloat16 what the model's specification, sections 2 and 5, rounds: turned queries, P under the
running maximum, outputs before they are turned back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels import rope
from tensorfold.kernels.attend.runs import BLOCK
from tensorfold.kernels.codes import E2M1, E4M3, UE8M0, unpack_nibbles
from tensorfold.kernels.exact import (
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
    wide,
)
from tensorfold.kernels.functions import exp
from tensorfold.kernels.kernel import Array

F64 = NDArray[np.float64]


def window_rows(rows: Array) -> F32:
    """uint8 [..., D + D / 32] -> float32 [..., D]; scale bytes below 96 count as scale zero."""
    d = rows.shape[-1] // 33 * 32
    scale = rows[..., d:]
    with np.errstate(all="ignore"):
        return np.asarray(E4M3[rows[..., :d]] * np.repeat(UE8M0[np.where(scale < 96, 0, scale)], 32, -1))


def packed_rows(rows: Array) -> F32:
    """uint8 [..., D / 2 + D / 16] -> float32 [..., D]."""
    d = rows.shape[-1] // 9 * 16
    with np.errstate(all="ignore"):
        return np.asarray(E2M1[unpack_nibbles(rows[..., : d // 2])] * np.repeat(E4M3[rows[..., d // 2 :]], 16, -1))


@dataclass(frozen=True)
class Columns:
    """Decoded rows float32 [R, C, D] of every column and which columns are not empty [R, C]; C a multiple of 64."""

    keys: F32
    used: NDArray[np.bool_]


def columns(runs: Sequence[Array], sizes: Array) -> Columns:
    """The window's columns, then K compressed ones, then empty ones up to C; arrays as the kernels take them."""
    window, window_new, window_places, packed, packed_new, packed_places = runs
    parts = [window_rows(np.concatenate([window, window_new]))[np.maximum(window_places, 0)]]
    used = [window_places >= 0]
    if sizes[3]:
        parts.append(packed_rows(np.concatenate([packed, packed_new]))[np.maximum(packed_places, 0)])
        used.append(packed_places >= 0)
    keys, live = np.concatenate(parts, 1), np.concatenate(used, 1)
    spare = int(sizes[4]) - keys.shape[1]
    return Columns(np.pad(keys, ((0, 0), (0, spare), (0, 0))), np.pad(live, ((0, 0), (0, spare))))


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


def turned(x: Array, table: Array, inverse: bool = False) -> Array:
    """bfloat16 [R, H, D] turned by each row's own entry of `table`: the bits of `rope`."""
    return rope.stated(x, table, np.arange(len(x)), inverse)[0]


def stated_scores(q: Array, table: Array, *rest: Array) -> list[Array]:
    """float32 [R, H, C], in the order the source states; -infinity where a column is empty."""
    *runs, scale, sizes = rest
    cols = columns(runs, sizes)
    found = scores(turned(q, table), cols, scale)
    found = np.where(np.abs(found) < f32(2.0**-64), f32(0), found)
    return [store_f32(np.where(cols.used[:, None], found, f32(-np.inf)))]


def stated_values(s: Array, table: Array, *rest: Array) -> list[Array]:
    """bfloat16 [R, H, D], in the order the source states."""
    *runs, sink, sizes = rest
    cols = columns(runs, sizes)
    soft = softmax(s, cols.used, sink)
    with np.errstate(all="ignore"):
        out = store_bf16(flush(weighted(soft, cols) / soft.divisor[..., None]))
    return [turned(out, table, inverse=True)]


def scores_and_size(q: Array, table: Array, *rest: Array) -> tuple[F64, F64]:
    """The scores' truth in float64, [R, H, C], and the sum of their terms' magnitudes, 0 where that is not finite."""
    *runs, scale, sizes = rest
    cols = columns(runs, sizes)
    a, b = wide(turned(q, table)), cols.keys.astype(np.float64)
    with np.errstate(all="ignore"):
        s, size = (np.einsum("rhd,rcd->rhc", f(a), f(b)) * float(scale[0]) for f in (np.positive, np.abs))
        return np.where(cols.used[:, None], s, -np.inf), np.where(cols.used[:, None] & np.isfinite(size), size, 0)


def _round_bf16(x: F64) -> tuple[F64, F64, F64]:
    """Rounded to 8 bits, the spacing there, and the distance to the nearest tie."""
    mantissa, exponent = np.frexp(x)
    scaled = mantissa * 256
    low = np.floor(scaled)
    return (
        np.ldexp(np.rint(scaled), exponent - 8),
        np.ldexp(1.0, exponent - 8),
        np.ldexp(np.abs(scaled - low - 0.5), exponent - 8),
    )


def attended_and_slack(scores: Array, *rest: Array, off: F64 | float = 0.0) -> tuple[F64, F64]:
    """Before the turn: the attended truth in float64, [R, H, D], and how far float32 may lead away from it where scores
    are off by `off` at most."""
    *runs, sink, sizes = rest
    cols = columns(runs, sizes)
    keys, s, half = cols.keys.astype(np.float64), wide(scores), 2.0**-24
    off = np.broadcast_to(off, s.shape)
    rows, heads, d = *s.shape[:2], keys.shape[-1]
    with np.errstate(all="ignore"):
        top, total = np.full((rows, heads), -1e30), np.zeros((rows, heads))
        worst, spread = np.zeros((rows, heads)), np.zeros((rows, heads, d))
        out, lost = np.zeros((rows, heads, d)), np.zeros((rows, heads, d))
        for start in range(0, s.shape[2], BLOCK):
            part = slice(start, start + BLOCK)
            live = cols.used[:, None, part]
            here, value = np.where(live, s[:, :, part], -np.inf), np.where(cols.used[:, part, None], keys[:, part], 0)
            size = np.abs(value)
            peak = np.maximum(top, here.max(-1))
            shrink = np.exp(top - peak)
            apart = here - peak[..., None]
            p = np.where(live, np.exp(apart), 0)
            rounded, step, tie = _round_bf16(p)
            # relative error of p: its score's and the maximum's, the rounding of their difference, exp
            apiece = 2 * np.where(live, off[:, :, part], 0).max(-1, keepdims=True)
            error = np.where(p > 0, apiece + (np.abs(apart) + 6) * half, 0)
            flips = np.where(tie <= error * p, step, 0)
            out = out * shrink[..., None] + np.einsum("rhc,rcd->rhd", rounded, value)
            lost = lost * shrink[..., None] + np.einsum("rhc,rcd->rhd", flips + 2.0**-63, size)
            spread = spread * shrink[..., None] + np.einsum("rhc,rcd->rhd", p, size)
            total, top = total * shrink + p.sum(-1), peak
            worst = np.maximum(worst, np.where(p > 1e-9, error, 0).max(-1))
        divisor = (total + np.exp(wide(sink) - top))[..., None]
        relative = 2 * worst[..., None] + (s.shape[2] + 16) * half
        truth, slack = out / divisor, (lost + relative * spread) / divisor
    return truth, np.where(np.isfinite(slack), slack, 0)


def _turned_slack(lost: F64, size: F64, table: Array) -> F64:
    """What `lost` before the turn and the turn's own roundings cost; outside the turned dims `lost` itself."""
    first = lost.shape[-1] - 2 * table.shape[1]
    c, s = (np.abs(wide(table))[:, None, :, i] for i in (0, 1))
    a, b = lost[..., first::2], lost[..., first + 1 :: 2]
    largest = np.maximum(size[..., first::2], size[..., first + 1 :: 2]) * 3 * 2.0**-24
    y = lost.copy()
    y[..., first::2], y[..., first + 1 :: 2] = c * a + s * b + largest, s * a + c * b + largest
    return y


def truth_and_slack(scores: Array, table: Array, *rest: Array, off: F64 | float = 0.0) -> tuple[F64, F64]:
    """The values' truth in float64, [R, H, D], and how far float32 may lead away from it before the last rounding."""
    truth, slack = attended_and_slack(scores, *rest, off=off)
    with np.errstate(all="ignore"):
        rounded, step, tie = _round_bf16(truth)
        reach = slack + 2 * 2.0**-24 * np.abs(truth) + 2.0**-126
        lost = np.where(tie <= reach, step + reach, 0)
        out = rope.reference(store_bf16(rounded.astype(f32)), table, np.arange(len(scores)), True)[0]
        return out, np.nan_to_num(_turned_slack(lost, np.abs(rounded), table), posinf=0.0)
