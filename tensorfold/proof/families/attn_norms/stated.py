"""attn_norms: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.stated import act_quant_fp8_pack, act_quant_fp8_planes
from tensorfold.proof.families.attn_norms.reference import both


def attn_norms(*arrays: Array) -> list[Array]:
    """rms_norm, then act_quant_fp8_planes; rms_norm, rope, then act_quant_fp8_pack."""
    return both((act_quant_fp8_planes, act_quant_fp8_pack), *arrays)
