"""hc_post and hc_post_dots: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.hc_mix.stated import hc_dots
from tensorfold.proof.numerics.exact import flush, fma, load, mul_flushed, store_bf16


def hc_post(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float32: the streams in order by fma, the output's product last."""
    v, c = load(x), load(comb)
    mixed = mul_flushed(c[:, 0, :, None], v[:, 0, None])
    with np.errstate(all="ignore"):
        for i in range(1, v.shape[1]):
            mixed = flush(fma(c[:, i, :, None], v[:, i, None], mixed))
        return [store_bf16(mixed + mul_flushed(load(post)[..., None], load(y)[:, None]))]


def hc_post_dots(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (out,) = hc_post(y, x, post, comb)
    return [out, *hc_dots(out, fn)]
