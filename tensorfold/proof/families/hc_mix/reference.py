"""hc_dots and hc_mix: float64 truths and bounds. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import load, wide
from tensorfold.proof.proof import Bound

CHUNK = 512  # elements of a partial product


def chunks(x: Array, fn: Array, dtype: type) -> tuple[Array, Array]:
    """x [R, C, 1, 512] and the factors [R or 1, C, M, 512], then the row itself, padded with zeros."""
    rows, k = len(x), fn.shape[1]
    count = -(-k // CHUNK)
    v = np.zeros((rows, count * CHUNK), dtype)
    v[:, :k] = load(x).reshape(rows, k)
    f = np.zeros((len(fn), count * CHUNK), dtype)
    f[:, :k] = load(fn)
    v = v.reshape(rows, count, 1, CHUNK)
    return v, np.moveaxis(f.reshape(len(fn), count, CHUNK), 0, 1)[None]


def hc_dots(x: Array, fn: Array) -> list[Array]:
    """float64 truth."""
    v, f = chunks(x, fn, np.float64)
    with np.errstate(all="ignore"):
        products = np.einsum("rci,cmi->rcm", v[:, :, 0], f[0]) if np.isfinite(v).all() else (v * f).sum(-1)
        return [np.concatenate([products, (v * v).sum(-1)], -1)]


def dots_magnitude(x: Array, fn: Array) -> list[Array]:
    with np.errstate(all="ignore"):
        return hc_dots(np.abs(load(x)), np.abs(load(fn)))


SCALE_OF = np.repeat([0, 1, 2], [4, 4, 16])


def hc_mix(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """float64 truth."""
    e = wide(hc_eps)
    with np.errstate(all="ignore"):
        total = wide(part).sum(1)
        r = 1 / np.sqrt(total[:, 24:] / width + wide(norm_eps))
        v = total[:, :24] * r * wide(scale)[SCALE_OF] + wide(base)
        gate = 1 / (1 + np.exp(-v[:, :8]))
        c = v[:, 8:].reshape(-1, 4, 4)
        c = np.exp(c - c.max(2, keepdims=True))
        c = c / c.sum(2, keepdims=True) + e
        c = c / (c.sum(1, keepdims=True) + e)
        for _ in range(iterations - 1):
            c = c / (c.sum(2, keepdims=True) + e)
            c = c / (c.sum(1, keepdims=True) + e)
        return [gate[:, :4] + e, 2 * gate[:, 4:], c]


def sensitivity(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """1 + how far an error of 2^-24 in every operation may move v, in units of 2^-24, for each output."""
    p = wide(part)
    with np.errstate(all="ignore"):
        r = 1 / np.sqrt(p[:, :, 24].sum(1, keepdims=True) / width + wide(norm_eps))
        size = np.abs(p[:, :, :24]).sum(1) * r * np.abs(wide(scale)[SCALE_OF])
        moved = size * (p.shape[1] + 6) + np.abs(wide(base))
        largest = moved[:, 8:].max(1)[:, None, None]
        return [1 + moved[:, :4] / 4, 1 + moved[:, 4:8] / 2, 4 * iterations + 2 * largest + np.zeros((len(p), 4, 4))]


BOUNDS = {
    "hc_dots": Bound(
        "chains of 16 fma and 5 levels of sums, each rounding 2^-24 of the sum of magnitudes, the first of no weight; "
        "each of 512 + 31 sums may be flushed",
        ulps=0.0,
        absolute=21 * 2.0**-24,
        tiny=543 * 2.0**-126,
        scale=dots_magnitude,
    ),
    "hc_mix": Bound(
        "v is off by C + 6 roundings of its products and one of its base; a sigmoid's slope is 1/4 and its own error 2 "
        "ulp; a normalisation never widens relative errors, adds four roundings, and there are 2 a turn below 1",
        ulps=0.5,
        absolute=6 * 2.0**-24,
        scale=sensitivity,
    ),
}
