"""hc_mix by itself: launched by no model, for hc_enter mixes on its way. Here the mistakes of hc_mix.h are planted."""

from __future__ import annotations

from pathlib import Path

from tensorfold.kernels.hc_mix.plan import plan_hc_mix
from tensorfold.kernels.kernel import Kernel

KERNELS = (
    Kernel(
        name="hc_mix",
        path=Path(__file__).with_name("hc_mix.metal"),
        inputs=("part", "base", "scale", "norm_eps", "hc_eps"),
        outputs=("pre", "post", "comb"),
        geometries=({"height": 4}, {"height": 1}, {"height": 16}),
        plan=plan_hc_mix,
    ),
)
