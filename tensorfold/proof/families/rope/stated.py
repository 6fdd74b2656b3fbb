"""rope: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.rope.reference import turn
from tensorfold.proof.numerics.exact import load, mul_flushed, store_bf16


def rope(x: Array, table: Array, positions: Array, inverse: bool = False) -> list[Array]:
    """float32: both products rounded and flushed, then their sum."""
    return [store_bf16(turn(load(x), table, positions, inverse, mul_flushed))]
