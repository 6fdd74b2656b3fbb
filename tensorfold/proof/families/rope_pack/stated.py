"""norm_rope_pack: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.stated import (
    act_quant_fp4_e4m3_pack,
    act_quant_fp4_e8m0_pack,
    act_quant_fp8_pack,
)
from tensorfold.proof.families.rope_pack.reference import before

_PACKS = {
    "window": act_quant_fp8_pack,
    "compressed": act_quant_fp4_e4m3_pack,
    "key": act_quant_fp4_e8m0_pack,
}


def norm_rope_pack(
    x: Array, w: Array, table: Array, eps: Array, kind: str = "window", norm: bool = True
) -> list[Array]:
    """rms_norm, rope, then the format's pack."""
    return _PACKS[kind](before(x, w, table, eps, norm))
