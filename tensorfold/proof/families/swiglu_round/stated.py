"""swiglu_round: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.stated import act_quant_fp8_round
from tensorfold.proof.families.swiglu_round.reference import both


def swiglu_round(*arrays: Array) -> list[Array]:
    """swiglu_weighted, then act_quant_fp8_round."""
    return both(act_quant_fp8_round, arrays)
