"""attn_norms: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers and docs/model.md#attention. A composition of `rms_norm`, `rope`,
`act_quant_fp8_planes` and `act_quant_fp8_pack`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import act_quant_fp8_pack, act_quant_fp8_planes
from tensorfold.proof.families.rms_norm.stated import rms_norm
from tensorfold.proof.families.rope.stated import rope
from tensorfold.proof.proof import Bound


def both(
    quantisers: tuple[Any, Any], low: Array, q_norm: Array, kv: Array, kv_norm: Array, table: Array, eps: Array
) -> list[Array]:
    planes, pack = quantisers
    (q,) = rms_norm(low, q_norm, eps)
    (row,) = rms_norm(kv, kv_norm, eps)
    (row,) = rope(row[:, None], table, np.arange(len(row)))
    return [*planes(q), *pack(row[:, 0])]


def attn_norms(*arrays: Array) -> list[Array]:
    """The quantisers' truths of the bfloat16 values that rms_norm and rope state."""
    return both((act_quant_fp8_planes, act_quant_fp8_pack), *arrays)


BOUNDS = {
    "attn_norms": Bound(
        "codes and scales are integers and must be equal, a code times its scale is exact in float32; the bfloat16 "
        "values before them are what rms_norm and rope state and their own contracts bound",
        ulps=0.0,
    ),
}
