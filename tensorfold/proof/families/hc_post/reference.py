"""hc_post and hc_post_dots: float64 truths and bounds. Knows no launch.

Source: docs/model.md#hyper-connections. Truth and order are those of hc_post, then those of hc_dots.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.hc_mix.reference import BOUNDS as OF_THE_MIX
from tensorfold.proof.families.hc_mix.reference import CHUNK, dots_magnitude, hc_dots
from tensorfold.proof.numerics.exact import f32, load, store_bf16, wide
from tensorfold.proof.proof import Bound


def hc_post(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        mixed = np.sum(wide(comb)[..., None] * wide(x)[:, :, None], 1)
        return [wide(post)[..., None] * wide(y)[:, None] + mixed]


def post_magnitude(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    return hc_post(*(np.abs(load(a)) for a in (y, x, post, comb)))


def hc_post_dots(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float64, with the published rounding of the streams."""
    return with_products(hc_post(y, x, post, comb)[0], fn)


def with_products(out: Array, fn: Array) -> list[Array]:
    """New streams in float64, and the products of their bfloat16 values."""
    with np.errstate(all="ignore"):
        return [out, *hc_dots(store_bf16(out.astype(f32)), fn)]


def with_drift(out: Array, error: Array, fn: Array) -> list[Array]:
    """`error` of the new streams, and how far their products may be off: where it crosses an edge of bfloat16."""
    bound = OF_THE_MIX["hc_dots"]
    with np.errstate(all="ignore"):
        low, high = (load(store_bf16((out + side * error).astype(f32))).astype(np.float64) for side in (-1, 1))
        step, largest = high - low, store_bf16(np.maximum(np.abs(low), np.abs(high)).astype(f32))
        (moved,) = hc_dots(store_bf16(step.astype(f32)), np.abs(fn))
        (size,) = dots_magnitude(largest, fn)
        # of the square 2 |v| step: a product of the two
        both = np.abs(wide(largest)).reshape(len(out), -1) * step.reshape(len(out), -1)
        both = np.pad(both, ((0, 0), (0, -both.shape[1] % CHUNK))).reshape(*size.shape[:2], -1).sum(-1)
        moved[..., -1] = 2 * both
        return [error, bound.absolute * size + bound.tiny + 1.01 * moved]


def _dots_allowance(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    (out,) = hc_post(y, x, post, comb)
    (size,) = post_magnitude(y, x, post, comb)
    bound = BOUNDS["hc_post"]
    return with_drift(out, bound.absolute * size + bound.tiny, fn)


WHY_DOTS = (
    "half a step, and what the bounds of the streams' kernel and of hc_dots say; where a stream crosses an edge of "
    "bfloat16 its step times its factor, 1% more for the rounding of the step itself"
)


BOUNDS = {
    "hc_post": Bound(
        "one rounding to bfloat16 (0.5 ulp); N + 2 rounded operations below the sum of the products' magnitudes, "
        "N = 4: 6 * 2^-24 of it; each of as many may be flushed",
        ulps=0.5,
        absolute=6 * 2.0**-24,
        tiny=6 * 2.0**-126,
        scale=post_magnitude,
    ),
    "hc_post_dots": Bound(WHY_DOTS, ulps=0.5, absolute=1.0, scale=_dots_allowance),
}
