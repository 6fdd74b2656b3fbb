"""Trial inputs whose quantised codes hang on the last bit of float32, so that orders of sums show. Knows no kernel.

A value halfway between two bfloat16 neighbours that round to two codes: one bit of float32 more, and the code turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorfold.proof.numerics.codes import E2M1, E4M3
from tensorfold.proof.numerics.exact import F32, Bits, f32, load_bf16, store_bf16, wide
from tensorfold.proof.numerics.inputs import Draw

LEAD = 5.0  # a block's largest value: its neighbours have the same scale in every format


@dataclass(frozen=True)
class Format:
    """Finite magnitudes of the codes, the scale of a block that LEAD leads, elements a block."""

    table: F32
    scale: float
    block: int


FP8 = Format(E4M3[:127], 2.0**-6, 32)
FP4_E8M0 = Format(E2M1[:8], 1.0, 32)
FP4_E4M3 = Format(E2M1[:8], 0.8125, 16)


def tie_below(magnitude: ArrayLike, form: Format) -> NDArray[np.float64]:
    """The largest point below each magnitude on whose sides float32 values get two codes."""
    grid = form.table.astype(np.float64) * form.scale
    middle = (grid[1:] + grid[:-1]) / 2
    # a middle itself rounds to the even code, so the codes part half a bfloat16 step above or below it
    step = np.ldexp(1.0, np.frexp(middle)[1] - 9)
    ties = middle + np.where(np.arange(len(middle)) % 2, -step, step)
    return np.asarray(ties[np.clip(np.searchsorted(ties, magnitude) - 1, 0, None)])


def normed(seed: int, rows: int, k: int, eps: float, form: Format) -> tuple[Bits, Bits]:
    """bfloat16 x [rows, k] and w [k] whose RMSNorm has element 1 of each row at such a tie, as near as sums allow.

    Element 0 leads the first block; the last four elements make up what the mean square lacks. Magnitudes lie apart, so
    that sums of squares round.
    """
    draw = Draw(seed)
    w, far = draw.bf16(k), np.exp2(-draw.integers(0, 11, rows, k)).astype(f32)
    x = store_bf16(draw.normal(rows, k) * far)
    w[:2], x[:, :2], x[:, -4:] = store_bf16(1), 0, 0
    rest = np.sum(wide(x) ** 2, axis=1)
    x[:, 0] = store_bf16(np.sqrt(LEAD**2 * rest / (k - LEAD**2 - 16)))
    factor = 1 / np.sqrt((rest + wide(x)[:, 0] ** 2) / k + eps)
    # a little above the tie now, so that the mean square must grow
    x[:, 1] = store_bf16(tie_below(draw.uniform(0.3, 4.0, rows), form) * 1.2 / factor)
    size = wide(x)[:, 1]
    wanted = size / tie_below(size * factor * 0.95, form)
    missing = k * (wanted**2 - eps) - np.sum(wide(x) ** 2, axis=1)
    for i in range(-4, 0):
        x[:, i] = store_bf16(np.sqrt(np.maximum(missing, 0)) * (1 - 2.0**-8))
        missing = missing - load_bf16(x[:, i]).astype(np.float64) ** 2
    return x, w


def pairs(seed: int, rows: int, dims: int, form: Format) -> Bits:
    """bfloat16 [rows, dims] for `turning`: first of a pair 1 to 2, second 0.25 to 0.5, in a block's first pair zero."""
    draw = Draw(seed)
    x = np.stack([draw.uniform(1.0, 2.0, rows, dims // 2), draw.uniform(0.25, 0.5, rows, dims // 2)], -1)
    x[:, :: form.block // 2, 1] = 0
    return store_bf16(x.reshape(rows, dims))


def turning(seed: int, x: Bits, form: Format) -> F32:
    """A table float32 [rows, dims / 2, 2]: turned by it, the second of each pair of x lies at such a tie.

    A block's first pair leads the block.
    """
    v, draw = wide(x).reshape(len(x), -1, 2), Draw(seed)
    a, b = v[..., 0], v[..., 1]
    c = draw.uniform(0.5, 1.0, *a.shape)
    s = (tie_below(draw.uniform(0.3, 2.0, *a.shape), form) - b * c) / a
    lead = np.arange(a.shape[1]) % (form.block // 2) == 0
    return np.stack([np.where(lead, LEAD / a, c), np.where(lead, 0, s)], -1).astype(f32)
