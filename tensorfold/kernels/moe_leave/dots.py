"""moe_leave with the partial products that the next mix adds: kernel, truth, stated order, mistakes. Knows no routing.

Source: the model's specification, sections 6 and 3. Truth and order are those of moe_leave, then those of hc_dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorfold.kernels.hc_mix.dots import stated as stated_products
from tensorfold.kernels.hc_post import dots
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.moe_leave import leave


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """moe_leave's inputs, fn [M, N D] float32 -> out [R, N, D] bfloat16, part [R, ceil(N D / 512), M + 1] float32."""
    try:
        leave.plan(arrays[:5], {"width": 32, "E": 1})
    except ValueError as error:
        raise ValueError(f"moe_leave_dots: {error}") from error
    return dots.launch("moe_leave_dots", arrays[2], arrays[5], geometry, EXPERTS=arrays[0].shape[1])


def reference(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float64, with the published roundings of the experts' sum and of the streams."""
    return dots.with_products(leave.reference(routed, shared, x, post, comb)[0], fn)


def stated(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (out,) = leave.stated(routed, shared, x, post, comb)
    return [out, *stated_products(out, fn)]


def _allowance(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    (out,) = leave.reference(routed, shared, x, post, comb)
    (error,) = leave.allowance(routed, shared, x, post, comb)
    return dots.with_drift(out, error + leave.KERNEL.bound.tiny, fn)


def cases() -> list[Case]:
    """Those of moe_leave, but behind one expert alone few of the streams: hc_post_dots has the others."""
    few = ("cancelling of one", "cancelled by the output of one", "tiny of one")
    return dots.with_fn([case for case in leave.cases() if " of one" not in case.name or case.name in few])


KERNEL = Kernel(
    name="moe_leave_dots",
    path=Path(__file__).with_name("moe_leave_dots.metal"),
    inputs=("routed", "shared", "x", "post", "comb", "fn"),
    outputs=("out", "part"),
    geometries=dots.GEOMETRIES,
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(dots.WHY, ulps=0.5, absolute=1.0, scale=_allowance),
    controls=(
        # mistakes inside a part are planted where it stands alone
        Control("sum not rounded between", "p_round_bf(joined", "(joined"),
        Control("another element of the shared expert", "uint(D) + (d)])))", "uint(D)])))"),
    ),
    cases=cases,
    row_inputs=("routed", "shared", "x", "post", "comb"),
    choose=dots.choose,
)
