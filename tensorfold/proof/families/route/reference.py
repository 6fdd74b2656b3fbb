"""route: float64 truth and bound. Knows no launch.

Source: docs/model.md#experts. The choice compares float32 scores plus bias, so it is defined by them:
the truth's ids follow from the stated scores, its weights are float64.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import load, wide
from tensorfold.proof.numerics.functions import softplus
from tensorfold.proof.proof import Bound


def scores(logits: Array) -> Array:
    """float32 sqrt(softplus(logits)) as the kernel computes it."""
    with np.errstate(all="ignore"):
        return np.sqrt(softplus(load(logits)))


def pick(logits: Array, bias: Array, k: int) -> Array:
    """int32 [R, k] ascending: a full sort by value, then id."""
    with np.errstate(all="ignore"):
        total = scores(logits) + load(bias)
    order = np.lexsort((np.broadcast_to(np.arange(total.shape[1]), total.shape), -total, np.isnan(total)), axis=-1)
    return np.sort(order[:, :k], -1).astype(np.int32)


def route(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """float64 weights of the experts that the stated scores choose."""
    ids = pick(logits, bias, k)
    v = np.take_along_axis(wide(logits), ids, -1)
    with np.errstate(all="ignore"):
        s = np.sqrt(np.where(v > 20, v, np.log1p(np.exp(np.minimum(v, 20)))))
        return [ids, (s / (s.sum(-1, keepdims=True) + 1e-20) if normalise else s) * wide(scale)]


def _scale(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """What scores flushed to zero (logits below -87, scores below 1.3e-19) may cost a weight."""
    ids = pick(logits, bias, k)
    v = np.take_along_axis(wide(logits), ids, -1)
    with np.errstate(all="ignore"):
        s = np.sqrt(np.where(v > 20, v, np.log1p(np.exp(np.minimum(v, 20)))))
        lost = 1.3e-19 * ((k + 1) / (s.sum(-1, keepdims=True) + 1e-20) if normalise else 1.0)
    return [np.float64(0), lost * np.abs(wide(scale)) + np.zeros(v.shape)]


BOUNDS = {
    "route": Bound(
        "ids are integers and must be equal; a score is off by 2 ulp of softplus, halved by the root, and by a "
        "rounding (3 * 2^-24), the sum of at most 8 positive scores by as much and its additions; three roundings",
        ulps=0.5,
        relative=16 * 2.0**-24,
        absolute=1.0,
        scale=_scale,
    ),
}
