"""hc_enter: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.stated import act_quant_fp8_planes
from tensorfold.proof.families.hc_collapse_norm.stated import hc_collapse_norm
from tensorfold.proof.families.hc_mix.stated import hc_mix


def hc_enter(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """float32: the three kernels' orders, one after another."""
    (h,) = hc_collapse_norm(x, pre, w, norm_eps)
    return [*hc_mix(part, base, scale, norm_eps, hc_eps, width, iterations), h, *act_quant_fp8_planes(h)]
