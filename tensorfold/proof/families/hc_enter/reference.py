"""hc_enter: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers and docs/model.md#hyper-connections: hc_mix of the streams' partial products,
hc_collapse_norm with the mix before, and its output through act_quant as planes. Truth and order: those of the three
kernels, one after another.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import FP8, act_quant_fp8_planes, as_planes, nearest, scale_bytes
from tensorfold.proof.families.hc_collapse_norm.reference import BOUNDS as OF_THE_NORM
from tensorfold.proof.families.hc_collapse_norm.reference import allowance, hc_collapse_norm
from tensorfold.proof.families.hc_mix.reference import BOUNDS as OF_THE_MIX
from tensorfold.proof.families.hc_mix.reference import hc_mix, sensitivity
from tensorfold.proof.numerics.exact import f32, load, store_bf16
from tensorfold.proof.proof import Bound


def hc_enter(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """float64, with the published roundings: of the collapse, and of the norm before it is quantised."""
    (h,) = hc_collapse_norm(x, pre, w, norm_eps)
    with np.errstate(all="ignore"):
        (q,) = act_quant_fp8_planes(store_bf16(h.astype(f32)))
    return [*hc_mix(part, base, scale, norm_eps, hc_eps, width, iterations), h, q]


def _quantised_apart(h: Array, error: Array) -> Array:
    """Largest distance between quantised values of vectors within `error` of h: at a scale they grow with h."""
    with np.errstate(all="ignore"):
        ends = [load(store_bf16((h + side * error).astype(f32))) for side in (-1, 1)]
        least = np.where(np.signbit(ends[0]) == np.signbit(ends[1]), np.minimum(*np.abs(ends)), f32(0))
        made = []
        for size in (least, np.maximum(*np.abs(ends))):
            step = FP8.scales[scale_bytes(store_bf16(size), FP8)].astype(np.float64)
            for end in ends:
                parts = end.reshape(*h.shape[:-1], -1, 32).astype(np.float64) / step
                made.append(FP8.values[nearest(parts, FP8.values[: FP8.finite], FP8.sign)] * step)
        return (np.max(made, 0) - np.min(made, 0)).reshape(h.shape)


def _allowance(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """What the bounds of the three kernels allow beyond half a step of each output."""
    sizes = sensitivity(part, base, scale, norm_eps, hc_eps, width, iterations)
    (h,) = hc_collapse_norm(x, pre, w, norm_eps)
    normed, mixed = OF_THE_NORM["hc_collapse_norm"], OF_THE_MIX["hc_mix"]
    with np.errstate(all="ignore"):
        error = normed.relative * np.abs(h) + allowance(x, pre, w, norm_eps)[0] + normed.tiny
    q = as_planes(_quantised_apart(h, error))
    return [*(mixed.absolute * size for size in sizes), error, q]


BOUNDS = {
    "hc_enter": Bound(
        "half a step, and for the mix, the collapse and the norm what their own bounds say; where h crosses an "
        "edge of a code or of a scale, the distance between the values at both ends of what h may be",
        ulps=0.5,
        absolute=1.0,
        scale=_allowance,
    ),
}
