"""attend_scores and attend_values: float64 truths and bounds. Knows no launch.

Source: docs/model.md#attention and docs/model.md#decisions: blocks of 64 columns, running maximum, P rounded to
bfloat16; outputs are turned back by the rotary tables of their position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.rope.reference import rope
from tensorfold.proof.families.rope.stated import rope as stated_rope
from tensorfold.proof.numerics.codes import E2M1, E4M3, UE8M0, unpack_nibbles
from tensorfold.proof.numerics.exact import F32, f32, store_bf16, wide
from tensorfold.proof.proof import Bound


def attend_values(*arrays: Array) -> list[Array]:
    """float64, with the published roundings of P and of what is turned back."""
    return [truth_and_slack(*arrays)[0]]


def _size(*arrays: Array) -> list[Array]:
    return [scores_and_size(*arrays)[1]]


def _slack(*arrays: Array) -> list[Array]:
    return [truth_and_slack(*arrays)[1]]


F64 = NDArray[np.float64]
BLOCK = 64  # columns that share a maximum


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


def columns_of_rows(runs: Sequence[Array], sizes: Array) -> Columns:
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


def turned(x: Array, table: Array, inverse: bool = False) -> Array:
    """bfloat16 [R, H, D] turned by each row's own entry of `table`: the bits of `rope`."""
    return stated_rope(x, table, np.arange(len(x)), inverse)[0]


def scores_and_size(q: Array, table: Array, *rest: Array) -> tuple[F64, F64]:
    """The scores' truth in float64, [R, H, C], and the sum of their terms' magnitudes, 0 where that is not finite."""
    *runs, scale, sizes = rest
    cols = columns_of_rows(runs, sizes)
    a, b = wide(turned(q, table)), cols.keys.astype(np.float64)
    with np.errstate(all="ignore"):
        s, size = (np.einsum("rhd,rcd->rhc", f(a), f(b)) * float(scale[0]) for f in (np.positive, np.abs))
        return np.where(cols.used[:, None], s, -np.inf), np.where(cols.used[:, None] & np.isfinite(size), size, 0)


def attend_scores(*arrays: Array) -> list[Array]:
    """float64, of queries rounded once they are turned."""
    return [scores_and_size(*arrays)[0]]


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
    cols = columns_of_rows(runs, sizes)
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
        out = rope(store_bf16(rounded.astype(f32)), table, np.arange(len(scores)), True)[0]
        return out, np.nan_to_num(_turned_slack(lost, np.abs(rounded), table), posinf=0.0)


BOUNDS = {
    "attend_scores": Bound(
        "exact products; four chains of D / 4 additions, D at most 512, two levels, a product: as many roundings of "
        "half a unit of the sum of magnitudes; below 2^-64 nothing is kept",
        ulps=0.0,
        absolute=(512 / 4 + 4) * 2.0**-24,
        tiny=2.0**-64,
        scale=_size,
    ),
    "attend_values": Bound(
        "one rounding to bfloat16; before it, as parts of the sums of magnitudes: the rounding of differences of "
        "scores, exp, and the sums over columns; P and the outputs before their rotation may round the other way where "
        "they lie that near a tie; then the rotation's two products and their sum",
        ulps=0.5,
        relative=2.0**-24,
        absolute=1.0,
        tiny=3 * 2.0**-126,
        scale=_slack,
    ),
}
