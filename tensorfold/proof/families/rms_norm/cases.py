"""rms_norm: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32, wide
from tensorfold.proof.proof import Case


def _near_ties(rows: int, k: int) -> tuple[Array, Array]:
    """float32 rows whose results lie at ties of bfloat16, so that another order of the sum shows in them.

    All but the last element of a row are chosen as ties over w, the last one makes the mean square one; then each row
    is scaled.
    """
    draw = inputs.Draw(rows * k)
    w = draw.bf16(k)
    z = inputs.bf16_ties(wide(w) * draw.normal(rows, k, scale=0.9)) / wide(w)
    z[:, -1] = np.sqrt(k - np.sum(z[:, :-1] ** 2, axis=1))
    return (z * draw.uniform(0.3, 3.0, rows, 1)).astype(f32), w


def rms_norm() -> list[Case]:
    """Ordinary rows of every hidden size in use, and extremes: zeros, one hot, huge, tiny, NaN and infinity."""
    eps = np.array([1e-20], f32)
    found = []
    for k in (32, 64, 96, 128, 256, 512, 1280, 5120):
        draw = inputs.Draw(k)
        rows = 16 if k in (96, 1280) else 3
        found.append(Case(f"K{k}", (draw.bf16(rows, k), draw.bf16(k), eps), rows=k in (96, 1280)))
    draw = inputs.Draw(1)
    found.append(Case("float32", (draw.normal(5, 512), draw.bf16(512), eps), rows=True))
    found.append(Case("order", (*_near_ties(64, 320), eps)))
    found.append(Case("extreme", (inputs.extremes_bf16(512), draw.bf16(512), eps)))
    found.append(Case("eps 1e-6", (inputs.extremes_bf16(128), draw.bf16(128), np.array([1e-6], f32))))
    found.append(Case("overflow", (inputs.overflow_bf16(128), draw.bf16(128), eps), bounded=False))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "rms_norm": ("x",),
}
