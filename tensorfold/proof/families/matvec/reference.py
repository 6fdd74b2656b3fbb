"""matvec_*: float64 truths and bounds. Knows no launch.

Source: docs/model.md#numbers, linear.
x is what act_quant_fp8 gives, decoded: bfloat16 rows (act_quant_fp8_round) or float planes (act_quant_fp8_planes).
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import act_quant_fp8_planes
from tensorfold.proof.families.matvec import stated
from tensorfold.proof.families.matvec.stated import CHUNK, DENSE_CHUNK, rows_of, scaled
from tensorfold.proof.numerics.codes import E4M3
from tensorfold.proof.numerics.exact import load, running_sums, wide
from tensorfold.proof.proof import Bound


def matvec_fp8(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """float64 truth."""
    *pairs, x = arrays
    found = []
    for w, s in zip(pairs[0::2], pairs[1::2]):
        n, k = w.shape
        v = wide(rows_of(x, k))
        with np.errstate(all="ignore"):
            values = E4M3[w].astype(np.float64) * scaled(s, n, 1)
            parts = values.reshape(v.shape[1], -1, k)
            y = [v[:, g] @ part.T if np.isfinite(part).all() and np.isfinite(v).all() else _slowly(v[:, g], part)
                 for g, part in enumerate(parts)]  # fmt: skip
        found.append(np.concatenate(y, -1))
    return found


def _slowly(v: Array, w: Array) -> Array:
    """A product that keeps NaN and infinity to their own rows."""
    return np.stack([(row * w).sum(-1) for row in v])


def fp8_magnitude(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """Roundings in a row times the sum of magnitudes."""
    *pairs, x = arrays
    k = pairs[0].shape[1]
    steps = k // CHUNK // running_sums(k // CHUNK)
    positive = [a & 0x7F if i % 2 == 0 else a for i, a in enumerate(pairs)]
    x = x & 0x7FFF if x.dtype == np.uint16 else np.abs(x)
    return [(CHUNK + steps + 5) * y for y in matvec_fp8(*positive, x, out=out)]


_WHY = (
    "products are exact; 16 roundings in a chunk, one a running sum's step, 5 levels of the tree, each 2^-24 of the "
    "sum of magnitudes; one rounding of the output"
)


def matvec_bf16(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """float64 truth."""
    a, b = wide(x), wide(w)
    with np.errstate(all="ignore"):
        if np.isfinite(a).all() and np.isfinite(b).all():
            return [a @ b.T]
        return [np.stack([(row * b).sum(-1) for row in a])]


def _bf16_magnitude(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """Roundings of a result times the sum of magnitudes."""
    k = w.shape[1]
    with np.errstate(all="ignore"):
        return [(k // running_sums(k // DENSE_CHUNK) + 5) * y for y in matvec_bf16(np.abs(load(w)), np.abs(load(x)))]


def matvec_fp8_quantised(*arrays: Array, width: int = 16) -> list[Array]:
    """The quantiser's truth of the bfloat16 values that matvec_fp8 states."""
    return act_quant_fp8_planes(stated.matvec_fp8(*arrays)[0])


matvec_fp8_pair = matvec_fp8

_FP8 = Bound(_WHY, ulps=0.5, absolute=2.0**-24, scale=fp8_magnitude)
BOUNDS = {
    "matvec_fp8": _FP8,
    "matvec_fp8_pair": _FP8,
    "matvec_bf16": Bound(
        "products are exact inside a fma; K / VL roundings in a chain, 5 levels of the tree, each 2^-24 of the sum "
        "of magnitudes; one rounding of the output",
        ulps=0.5,
        absolute=2.0**-24,
        scale=_bf16_magnitude,
    ),
    "matvec_fp8_quantised": Bound(
        "a code times its scale is exact in float32; the bfloat16 value before it is what matvec_fp8 states and "
        "its own contract bounds",
        ulps=0.0,
    ),
}
