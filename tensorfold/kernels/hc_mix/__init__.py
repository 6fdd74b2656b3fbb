"""The mixing weights of a row's four streams: two kernels, their truths, stated orders and mistakes. Knows no sublayer.

Source: the model's specification, section 3, mixes. Two launches, because every row needs 24 products over all of fn
and one threadgroup reads it too slowly: `hc_dots` gives partial sums of chunks, `hc_mix` adds them and normalises.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.hc_mix import dots, mix

__all__ = ["KERNELS", "hc_mix"]

KERNELS = (dots.KERNEL, mix.KERNEL)


def hc_mix(
    x: mx.array, fn: mx.array, base: mx.array, scale: mx.array, norm_eps: mx.array, hc_eps: mx.array, *,
    iterations: int, backend: str,
) -> list[mx.array]:  # fmt: skip
    """Streams bf16 [R, 4, D], fn f32 [24, 4 D], base f32 [24], scale f32 [3], both eps f32 [1].

    Returns pre, post f32 [R, 4] and comb f32 [R, 4, 4]. Raises ValueError where shapes do not fit.
    """
    (part,) = dots.KERNEL(x, fn, backend=backend)
    width = x.shape[1] * x.shape[2]
    return mix.KERNEL(part, base, scale, norm_eps, hc_eps, backend=backend, width=width, iterations=iterations)
