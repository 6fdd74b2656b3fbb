"""norm_rope_pack: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers. A composition of `rms_norm`, `rope` and a format's pack.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import (
    act_quant_fp4_e4m3_pack,
    act_quant_fp4_e8m0_pack,
    act_quant_fp8_pack,
)
from tensorfold.proof.families.rms_norm.stated import rms_norm
from tensorfold.proof.families.rope.stated import rope
from tensorfold.proof.proof import Bound

_PACKS = {
    "window": act_quant_fp8_pack,
    "compressed": act_quant_fp4_e4m3_pack,
    "key": act_quant_fp4_e8m0_pack,
}


def before(x: Array, w: Array, table: Array, eps: Array, norm: bool) -> Array:
    y = rms_norm(x.reshape(-1, x.shape[-1]), w, eps)[0] if norm else x
    heads = y.reshape(len(x), -1, x.shape[-1])
    return rope(heads, table, np.arange(len(x)))[0].reshape(x.shape)


def norm_rope_pack(
    x: Array, w: Array, table: Array, eps: Array, kind: str = "window", norm: bool = True
) -> list[Array]:
    """The format's truth of the bfloat16 values that rms_norm and rope state."""
    return _PACKS[kind](before(x, w, table, eps, norm))


BOUNDS = {
    "norm_rope_pack": Bound(
        "codes and scales are integers and must be equal; the bfloat16 values before them are what rms_norm and "
        "rope state and their own contracts bound",
        ulps=0.0,
    ),
}
