"""route: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.route.reference import pick, scores
from tensorfold.proof.numerics.exact import f32, flush, store_f32


def route(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """float32; the sum runs over ascending ids."""
    ids = pick(logits, bias, k)
    s = np.take_along_axis(scores(logits), ids, -1)
    with np.errstate(all="ignore"):
        total = s[:, 0]
        for j in range(1, k):
            total = total + s[:, j]
        w = flush(s / (total + f32(1e-20))[:, None]) if normalise else s
        return [ids, store_f32(w * scale[0])]
