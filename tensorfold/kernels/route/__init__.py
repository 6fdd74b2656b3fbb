"""Routing: which experts a row goes to and with what weights. Knows no expert's weights.

Source: the model's specification, section 6. The choice compares float32 scores plus bias, so it is defined by them:
the truth's ids follow from the stated scores, its weights are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, flush, load, store_f32, wide
from tensorfold.kernels.functions import softplus
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

MOST = 8  # picks that the bound is stated for


def plan(arrays: Sequence[Any], geometry: Geometry, k: int, normalise: bool = True) -> Launch:
    """logits [R, E], bias [E], scale [1] float32 -> ids int32 [R, k] ascending, weights float32 [R, k]."""
    logits, bias, _ = arrays
    rows, experts = logits.shape
    if bias.shape != (experts,) or not 1 <= k <= min(experts, MOST):
        raise ValueError(
            f"route: bias {tuple(bias.shape)} and k {k} do not fit logits {tuple(logits.shape)}: "
            f"expected {(experts,)} and a k of 1 to {min(experts, MOST)}"
        )
    groups = min(geometry["G"], -(-experts // 32))
    template = {"E": experts, "K": k, "NORM": normalise, "G": groups}
    return Launch(template, (rows * groups * 32, 1, 1), (groups * 32, 1, 1), ((rows, k),) * 2, (mx.int32, mx.float32))


def scores(logits: Array) -> Array:
    """float32 sqrt(softplus(logits)) as the kernel computes it."""
    with np.errstate(all="ignore"):
        return np.sqrt(softplus(load(logits)))


def _pick(logits: Array, bias: Array, k: int) -> Array:
    """int32 [R, k] ascending: a full sort by value, then id."""
    with np.errstate(all="ignore"):
        total = scores(logits) + load(bias)
    order = np.lexsort((np.broadcast_to(np.arange(total.shape[1]), total.shape), -total, np.isnan(total)), axis=-1)
    return np.sort(order[:, :k], -1).astype(np.int32)


def reference(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """float64 weights of the experts that the stated scores choose."""
    ids = _pick(logits, bias, k)
    v = np.take_along_axis(wide(logits), ids, -1)
    with np.errstate(all="ignore"):
        s = np.sqrt(np.where(v > 20, v, np.log1p(np.exp(np.minimum(v, 20)))))
        return [ids, (s / (s.sum(-1, keepdims=True) + 1e-20) if normalise else s) * wide(scale)]


def stated(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """float32; the sum runs over ascending ids."""
    ids = _pick(logits, bias, k)
    s = np.take_along_axis(scores(logits), ids, -1)
    with np.errstate(all="ignore"):
        total = s[:, 0]
        for j in range(1, k):
            total = total + s[:, j]
        w = flush(s / (total + f32(1e-20))[:, None]) if normalise else s
        return [ids, store_f32(w * scale[0])]


def _scale(logits: Array, bias: Array, scale: Array, k: int, normalise: bool = True) -> list[Array]:
    """What scores flushed to zero (logits below -87, scores below 1.3e-19) may cost a weight."""
    ids = _pick(logits, bias, k)
    v = np.take_along_axis(wide(logits), ids, -1)
    with np.errstate(all="ignore"):
        s = np.sqrt(np.where(v > 20, v, np.log1p(np.exp(np.minimum(v, 20)))))
        lost = 1.3e-19 * ((k + 1) / (s.sum(-1, keepdims=True) + 1e-20) if normalise else 1.0)
    return [np.float64(0), lost * np.abs(wide(scale)) + np.zeros(v.shape)]


def _ties(rows: int, experts: int) -> Array:
    """Logits of few values, so that most comparisons are ties."""
    return inputs.Draw(experts).integers(-2, 3, rows, experts).astype(f32)


def cases() -> list[Case]:
    """Every number of experts and picks in use; ties, zeros, extremes, NaN and infinities."""
    found = []
    scale = np.array([1.5], f32)
    for experts, k in ((8, 2), (8, 3), (12, 3), (16, 4), (16, 6), (128, 3), (384, 6)):
        draw = inputs.Draw(experts + k)
        rows = 16 if (experts, k) in ((16, 4), (384, 6)) else 3
        arrays = draw.normal(rows, experts, scale=2.0), draw.normal(experts, scale=0.1), scale
        found.append(Case(f"{k} of {experts}", arrays, {"k": k}, rows=rows == 16))
    none = np.zeros(384, f32)
    found.append(Case("ties", (_ties(16, 384), none, scale), {"k": 6}))
    found.append(Case("all equal", (np.zeros((2, 384), f32), none, scale), {"k": 6}))
    # an equal score in a later lane and slot: 5, 37 and 69 share a lane, 6 and 36 do not
    tied = np.full((4, 128), -4.0, f32)
    for row, best in enumerate(([5, 37, 69, 6], [69, 36, 6], [127, 126, 95, 0], [64, 32, 31, 33])):
        tied[row, best] = 1.0
    found.append(Case("ties across lanes", (tied, np.zeros(128, f32), scale), {"k": 3}))
    cancelled = inputs.Draw(8).normal(4, 16)
    found.append(Case("score cancelled by bias", (cancelled, -scores(cancelled[0]), scale), {"k": 4}))
    found.append(Case("extreme", (inputs.extremes_f32(128), inputs.Draw(4).normal(128), scale), {"k": 3}))
    found.append(Case("extreme bias", (inputs.Draw(9).normal(3, 16), inputs.extremes_f32(16)[12], scale), {"k": 4}))
    special = np.full((5, 12), np.nan, f32)
    special[0, :2], special[1, 3:], special[2, ::2], special[3, 4:] = 1.0, -np.inf, np.inf, -100.0
    found.append(Case("special", (special, inputs.Draw(5).normal(12), scale), {"k": 3}))
    steep = inputs.Draw(2).uniform(-100, 30, 6, 384)
    found.append(Case("steep, not normalised", (steep, none, np.array([2.5], f32)), {"k": 6, "normalise": False}))
    found.append(Case("steep", (np.minimum(steep, -60), none, scale), {"k": 6}))
    return found


KERNELS = (
    Kernel(
        name="route",
        path=Path(__file__).with_name("route.metal"),
        inputs=("logits", "bias", "scale"),
        outputs=("ids", "weights"),
        geometries=({"G": 12}, {"G": 4}, {"G": 1}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "ids are integers and must be equal; a score is off by 2 ulp of softplus, halved by the root, and by a "
            "rounding (3 * 2^-24), the sum of at most 8 positive scores by as much and its additions; three roundings",
            ulps=0.5,
            relative=16 * 2.0**-24,
            absolute=1.0,
            scale=_scale,
        ),
        controls=(
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control(
                "ties to the higher id",
                "= ~p_lanemaxu(best == top ? ~at : 0u);",
                "= p_lanemaxu(best == top ? at : 0u);",
            ),
            Control("ties to the higher id of a lane", "keys[i] > best ?", "keys[i] >= best ?"),
            Control("NaN first", "p_isnan(v) ? 1u : ordered", "p_isnan(v) ? 0xffffffffu : ordered"),
            Control("sign ignored", "(u & 0x80000000u) != 0u ? ~u : u | 0x80000000u", "u | 0x80000000u"),
            Control(
                "sum in the order of picking",
                "float score = scores[mine];",
                "float score = scores[picked[lane < uint(K) ? lane : 0u]];",
            ),
            Control("sum from the last id", "simd_shuffle(score, ushort(j)));", "simd_shuffle(score, ushort(K - j)));"),
            Control(
                "bias kept in the weight",
                "float score = scores[mine];",
                "float score = p_add(scores[mine], p_load(bias[mine]));",
            ),
            Control(
                "last experts missed",
                "uint keys[(E + 31) / 32];\n  for (uint i = 0u; i < uint((E + 31) / 32); i++)",
                "uint keys[(E + 31) / 32] = {0u};\n  for (uint i = 0u; i < uint((E - 1) / 32); i++)",
            ),
            Control(
                "absent experts read",
                "e < uint(E) ? route_key(p_add(scores[e], p_load(bias[e]))) : 0u",
                "route_key(p_add(scores[e], p_load(bias[e])))",
                backends=("host",),
            ),
        ),
        cases=cases,
        row_inputs=("logits",),
    ),
)
