"""hc_dots and hc_mix: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.hc_mix.reference import CHUNK, SCALE_OF, chunks
from tensorfold.proof.numerics import functions
from tensorfold.proof.numerics.exact import F32, f32, flush, fma, load, mul_flushed, store_f32


def hc_dots(x: Array, fn: Array) -> list[Array]:
    """float32: 32 running sums by fma, then the lanes, every sum flushed."""
    v, f = chunks(x, fn, f32)

    def part(a: F32, b: F32) -> F32:
        shape = np.broadcast_shapes(a.shape, b.shape)[:-1]
        acc = np.zeros((*shape, 32), f32)
        for start in range(0, CHUNK, 32):
            acc = flush(fma(a[..., start : start + 32], b[..., start : start + 32], acc))
        with np.errstate(all="ignore"):
            for distance in (16, 8, 4, 2, 1):
                acc = flush(acc + acc[..., np.arange(32) ^ distance])
        return acc[..., 0]

    return [store_f32(np.concatenate([part(v, f), part(v, v)], -1))]


def _sum4(c: F32, axis: int) -> F32:
    a, b, d, e = np.moveaxis(c, axis, 0)
    return np.expand_dims((a + b) + (d + e), axis)


def hc_mix(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """float32, in the order the source states."""
    p, e = load(part), f32(hc_eps[0])
    with np.errstate(all="ignore"):
        total = np.zeros((len(p), 25), f32)
        for chunk in range(p.shape[1]):
            total = flush(total + p[:, chunk])
        r = f32(1) / np.sqrt(total[:, 24:] / f32(width) + norm_eps[0])
        v = mul_flushed(mul_flushed(total[:, :24], r), scale[SCALE_OF]) + base
        gate = functions.sigmoid(v[:, :8])
        c = v[:, 8:].reshape(-1, 4, 4)
        c = functions.exp(c - c.max(2, keepdims=True))
        c = c / _sum4(c, 2) + e
        c = c / (_sum4(c, 1) + e)
        for _ in range(iterations - 1):
            c = c / (_sum4(c, 2) + e)
            c = c / (_sum4(c, 1) + e)
        return [store_f32(y) for y in (gate[:, :4] + e, f32(2) * gate[:, 4:], c)]
