"""swiglu_round: float64 truth and bound. Knows no launch.

Source: docs/model.md#numbers and docs/model.md#experts. A composition of `swiglu_weighted` and `act_quant_fp8_round`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import act_quant_fp8_round
from tensorfold.proof.families.swiglu_weighted.stated import swiglu_weighted
from tensorfold.proof.proof import Bound


def both(quantised: Callable[[Array], list[Array]], arrays: Sequence[Array]) -> list[Array]:
    gate, up, weights, shared_gate, shared_up, limit = arrays
    (routed,) = swiglu_weighted(gate, up, weights, limit)
    (shared,) = swiglu_weighted(shared_gate, shared_up, limit, limit, weighted=False)
    return [*quantised(routed), *quantised(shared)]


def swiglu_round(*arrays: Array) -> list[Array]:
    """The quantiser's truth of the bfloat16 values that swiglu_weighted states."""
    return both(act_quant_fp8_round, arrays)


BOUNDS = {
    "swiglu_round": Bound(
        "a code times its scale is exact in bfloat16; the bfloat16 value before it is what swiglu_weighted states "
        "and its own contract bounds",
        ulps=0.0,
    ),
}
