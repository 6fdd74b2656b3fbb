"""The experts' outputs and the shared one's, added: kernel, truth, stated order, mistakes. Knows no routing.

Source: the model's specification, section 6: float32, ascending expert id, then the shared expert, one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import flush, load, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """routed [R, K, D] bfloat16 in ascending expert id, shared [R, D] bfloat16 -> y [R, D] bfloat16."""
    routed, shared = arrays
    if len(routed.shape) != 3 or tuple(shared.shape) != (routed.shape[0], routed.shape[2]):
        raise ValueError(
            f"moe_join: routed {tuple(routed.shape)} and shared {tuple(shared.shape)}, expected [R, K, D] and [R, D]"
        )
    rows, k, d = routed.shape
    width = geometry["width"]
    return Launch({"D": d, "K": k}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def reference(routed: Array, shared: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        return [wide(routed).sum(1) + wide(shared)]


def stated(routed: Array, shared: Array) -> list[Array]:
    """float32, experts in the order given, the shared one last."""
    v = load(routed)
    total = v[:, 0]
    with np.errstate(all="ignore"):
        for i in range(1, v.shape[1]):
            total = flush(total + v[:, i])
        return [store_bf16(total + load(shared))]


def magnitude(routed: Array, shared: Array) -> list[Array]:
    return [np.abs(wide(routed)).sum(1) + np.abs(wide(shared))]


def cases() -> list[Case]:
    """Every hidden size and number of experts, cancelling experts, extremes, every kind of bit pattern."""
    found = []
    for k, d, rows in ((5, 96, 16), (4, 128, 3), (2, 128, 3), (3, 256, 3), (2, 256, 3), (6, 256, 3), (6, 5120, 2),
                       (3, 5120, 1), (1, 128, 2)):  # fmt: skip
        draw = inputs.Draw(k * d)
        found.append(Case(f"K{k} D{d}", (draw.bf16(rows, k, d), draw.bf16(rows, d)), rows=d == 96))
    draw = inputs.Draw(1)
    routed = draw.bf16(16, 6, 160)
    routed[:, 0] = draw.bf16(16, 160, scale=1000.0)
    routed[:, 2] = routed[:, 0] ^ np.uint16(0x8000)
    found.append(Case("cancelling", (routed, draw.bf16(16, 160)), rows=True))
    found.append(Case("cancelled by the shared", (routed[:, :2].copy(), routed[:, 2].copy())))
    found.append(Case("extreme", (inputs.extremes_bf16(6 * 128).reshape(16, 6, 128), draw.bf16(16, 128))))
    found.append(Case("extreme shared", (draw.bf16(16, 2, 128), inputs.extremes_bf16(128))))
    found.append(Case("tiny", (draw.bf16(4, 4, 128, scale=2.0**-124), draw.bf16(4, 128, scale=2.0**-124))))
    found.append(Case("any bits", (draw.any_bf16(4, 3, 256), draw.any_bf16(4, 256)), bounded=False))
    return found


_HEADER = "moe_join.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control(
        "experts in another order", "p_load(routed[i * stride])", "p_load(routed[(uint(K) - i) * stride])", _HEADER
    ),
    Control(
        "shared expert not last",
        "float total = p_load(routed[0]);",
        "float total = p_sub(p_add(p_load(routed[0]), last), last);",
        _HEADER,
    ),
    Control("last expert missed", "i < uint(K); i++", "i + 1u < uint(K); i++", _HEADER),
    Control("an expert too many", "i < uint(K); i++", "i <= uint(K); i++", _HEADER, ("host",)),
    Control("rounded before the shared expert", "p_add(total, last)", "p_add(p_round_bf(total), last)", _HEADER),
    Control(
        "experts' sums not flushed",
        "p_flush(p_add(total, p_load(routed[i * stride])))",
        "p_add(total, p_load(routed[i * stride]))",
        _HEADER,
        ("host",),
    ),
)

KERNELS = (
    Kernel(
        name="moe_join",
        path=Path(__file__).with_name("moe_join.metal"),
        inputs=("routed", "shared"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp); at most 8 rounded sums below the sum of magnitudes: 8 * 2^-24 of it; "
            "each sum may be flushed",
            ulps=0.5,
            absolute=8 * 2.0**-24,
            tiny=8 * 2.0**-126,
            scale=magnitude,
        ),
        controls=(
            *CONTROLS,
            Control("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
            Control("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("routed", "shared"),
    ),
)
