"""moe_up and moe_down: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.experts.stated import experts_down, experts_up
from tensorfold.proof.families.matvec.stated import matvec_fp8
from tensorfold.proof.families.moe_matrices.reference import ROUTED, shared_down, shared_up


def moe_up(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """experts_up, then matvec_fp8_pair."""
    return [*experts_up(*arrays[:ROUTED], n=n), *matvec_fp8(*shared_up(arrays))]


def moe_down(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """experts_down, then matvec_fp8."""
    return [*experts_down(*arrays[:ROUTED], n=n), *matvec_fp8(*shared_down(arrays))]
