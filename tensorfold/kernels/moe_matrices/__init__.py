"""The routed experts' and the shared expert's matrices in one launch: moe_up and moe_down. Knows no routing.

Source: the model's specification, sections 2 and 6. Compositions of `experts` and `matvec`.
"""

from __future__ import annotations

from pathlib import Path

from tensorfold.kernels.kernel import Bound, Kernel
from tensorfold.kernels.moe_matrices import cases, controls, plans


def _bound(up: bool) -> Bound:
    return Bound(
        "each part's own bound: one rounding to bfloat16 (0.5 ulp), and of float32 sums 64 roundings of the sum of "
        "magnitudes for FP4, what matvec counts for FP8; a flush may cost 2^-126 at each of at most 512 blocks",
        ulps=0.5,
        absolute=2.0**-24,
        tiny=1024 * 2.0**-126,
        scale=plans.magnitude_up if up else plans.magnitude_down,
    )


_HERE = Path(__file__)
_ROUTED = ("x", "ids", "shard", "place", "origin")
_ALIGNMENT = {"x": 16, "shard": 16}

KERNELS = (
    Kernel(
        name="moe_up",
        path=_HERE.with_name("moe_up.metal"),
        inputs=(*_ROUTED, "w1", "s1", "w3", "s3"),
        outputs=("gate", "up", "shared_gate", "shared_up"),
        geometries=plans.UP,
        plan=plans.plan_up,
        reference=plans.reference_up,
        stated=plans.stated_up,
        bound=_bound(True),
        controls=controls.BOTH + controls.UP,
        cases=cases.up,
        row_inputs=("x", "ids"),
        alignment={**_ALIGNMENT, "w1": 8, "w3": 8},
        choose=plans.choose_up,
    ),
    Kernel(
        name="moe_down",
        path=_HERE.with_name("moe_down.metal"),
        inputs=(*_ROUTED, "w2", "s2", "shared_x"),
        outputs=("y", "shared_y"),
        geometries=plans.DOWN,
        plan=plans.plan_down,
        reference=plans.reference_down,
        stated=plans.stated_down,
        bound=_bound(False),
        controls=controls.BOTH + controls.DOWN,
        cases=cases.down,
        row_inputs=("x", "ids", "shared_x"),
        alignment={**_ALIGNMENT, "w2": 8, "shared_x": 16},
        choose=plans.choose_down,
    ),
)
