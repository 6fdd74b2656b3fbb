"""moe_leave and moe_leave_dots: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.hc_mix.stated import hc_dots
from tensorfold.proof.families.hc_post.stated import hc_post
from tensorfold.proof.families.moe_join.stated import moe_join


def moe_leave(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (y,) = moe_join(routed, shared)
    return hc_post(y, x, post, comb)


def moe_leave_dots(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (out,) = moe_leave(routed, shared, x, post, comb)
    return [out, *hc_dots(out, fn)]
