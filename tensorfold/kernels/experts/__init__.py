"""The gathered experts' matrices, FP4 read where they lie: experts_up (w1, w3) and experts_down (w2). Knows no routing.

Source: the model's specification, sections 2 and 6: products of decoded values, float32 sums, one rounding to bfloat16.
"""

from __future__ import annotations

from pathlib import Path

from tensorfold.kernels.experts import cases, controls, orders
from tensorfold.kernels.kernel import Bound, Kernel

_BOUND = Bound(
    "one rounding to bfloat16 (0.5 ulp); of float32 31 roundings in a block, at most 16 blocks a "
    "running sum and 5 levels of the tree: below 64 * 2^-24 of the sum of magnitudes; a flush may cost 2^-126 at each "
    "of at most 512 blocks and at the tree",
    ulps=0.5,
    absolute=64 * 2.0**-24,
    tiny=1024 * 2.0**-126,
    scale=orders.magnitude,
)
_HERE = Path(__file__)
_INPUTS = ("x", "ids", "shard", "place", "origin")
_ALIGNMENT = {"x": 16, "shard": 16}

KERNELS = (
    Kernel(
        name="experts_up",
        path=_HERE.with_name("experts_up.metal"),
        inputs=_INPUTS,
        outputs=("gate", "up"),
        geometries=orders.GEOMETRIES,
        plan=orders.plan_up,
        reference=orders.reference_up,
        stated=orders.stated_up,
        bound=_BOUND,
        controls=controls.SHARED + controls.UP,
        cases=cases.up,
        row_inputs=("x", "ids"),
        alignment=_ALIGNMENT,
        choose=orders.choose_up,
    ),
    Kernel(
        name="experts_down",
        path=_HERE.with_name("experts_down.metal"),
        inputs=_INPUTS,
        outputs=("y",),
        geometries=orders.GEOMETRIES,
        plan=orders.plan_down,
        reference=orders.reference_down,
        stated=orders.stated_down,
        bound=_BOUND,
        controls=controls.SHARED + controls.DOWN,
        cases=cases.down,
        row_inputs=("x", "ids"),
        alignment=_ALIGNMENT,
        choose=orders.choose_down,
    ),
)
