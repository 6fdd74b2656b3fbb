"""engram_inject: float64 truth and bound. Knows no launch.

Source: docs/model.md#engram.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import wide
from tensorfold.proof.proof import Bound


def split(x: Array, kv: Array) -> tuple[Array, Array]:
    """Keys [R, N, D] and values [R, 1, D]."""
    rows, n, d = x.shape
    return kv[:, : n * d].reshape(rows, n, d), kv[:, None, n * d :]


def _gate(d: Array) -> Array:
    """float64 gate of a scaled dot product."""
    v = np.copysign(np.sqrt(np.maximum(np.abs(d), 1e-6)), d)
    return 1 / (1 + np.exp(-v))


def _scaled(x: Array, kv: Array, q: Array, k: Array, eps: Array) -> tuple[Array, Array, Array]:
    """float64 d [R, N, 1], the same of absolute terms, and the values."""
    h, (key, value) = wide(x), split(wide(x), wide(kv))
    terms = h * (wide(q) * wide(k)) * key
    mean_x, mean_key = (np.mean(v * v, -1, keepdims=True) + wide(eps) for v in (h, key))
    norm = 1 / np.sqrt(mean_x) / np.sqrt(mean_key) * h.shape[-1] ** -0.5
    return terms.sum(-1, keepdims=True) * norm, np.abs(terms).sum(-1, keepdims=True) * norm, value


def engram_inject(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        d, _, value = _scaled(x, kv, q, k, eps)
        return [wide(x) + _gate(d) * value]


def _scale(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """How far a sum can be off: the gate is monotone in d, so its range over d's error times the value."""
    with np.errstate(all="ignore"):
        d, magnitude, value = _scaled(x, kv, q, k, eps)
        off = 64 * 2.0**-24 * magnitude
        gate = _gate(d + off) - _gate(d - off) + 8 * 2.0**-24
        return [gate * np.abs(value) + 2.0**-24 * np.abs(wide(x))]


BOUNDS = {
    "engram_inject": Bound(
        "one rounding to bfloat16 (0.5 ulp), which a float32 error before it can still follow; d is off by at most "
        "64 * 2^-24 of the sum of its absolute terms (chains of at most 20 and 8 levels of additions, two "
        "roundings a term, both norms and their products), its gate by the range over that and 8 * 2^-24",
        ulps=0.5,
        relative=2.0**-24,
        absolute=1.0,
        tiny=3 * 2.0**-126,
        scale=_scale,
    ),
}
