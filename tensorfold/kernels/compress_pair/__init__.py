"""The two tokens of a ratio-2 group pooled before the norm: kernel, truth, stated order, mistakes. Knows no slot.

Source: the model's specification, section 5, compressor: a softmax over two gates in each dimension, bfloat16 result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, flush, load, mul_flushed, store_bf16, wide
from tensorfold.kernels.functions import exp
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """opened [S, 2, D] and own [R, 2, D] float32, partner [M, 2] int32 places -> y [M, D] bfloat16."""
    opened, own, partner = arrays
    s, two, d = opened.shape
    if two != 2 or tuple(own.shape[1:]) != (2, d) or partner.shape[1] != 2:
        raise ValueError(
            f"compress_pair: opened {tuple(opened.shape)}, own {tuple(own.shape)} and partner {tuple(partner.shape)} "
            "do not fit: expected [S, 2, D], [R, 2, D] and [M, 2]"
        )
    width, each, m = geometry["width"], geometry["E"], partner.shape[0]
    grid = (-(-d // (width * each)) * width, m, 1)
    return Launch({"S": s, "D": d, "E": each}, grid, (width, 1, 1), ((m, d),), (mx.bfloat16,))


def _pairs(opened: Array, own: Array, partner: Array) -> tuple[Array, Array]:
    """Values and gates [M, 2, D] of every group."""
    group = np.concatenate([opened, own])[partner]
    return group[:, :, 0], group[:, :, 1]


def reference(opened: Array, own: Array, partner: Array) -> list[Array]:
    """float64 truth."""
    c, g = (wide(a) for a in _pairs(opened, own, partner))
    with np.errstate(all="ignore"):
        e = np.exp(g - g.max(1, keepdims=True))
        return [np.sum(c * (e / e.sum(1, keepdims=True)), 1)]


def stated(opened: Array, own: Array, partner: Array) -> list[Array]:
    """float32, in the order the source states."""
    c, g = (load(a) for a in _pairs(opened, own, partner))
    with np.errstate(all="ignore"):
        e = exp(g - np.where(g[:, 0] < g[:, 1], g[:, 1], g[:, 0])[:, None])
        w = flush(e / (e[:, 0] + e[:, 1])[:, None])
        return [store_bf16(mul_flushed(c[:, 0], w[:, 0]) + mul_flushed(c[:, 1], w[:, 1]))]


def _magnitude(opened: Array, own: Array, partner: Array) -> list[Array]:
    return [np.abs(wide(_pairs(opened, own, partner)[0])).sum(1)]


def _near_ties(d: int, rows: int) -> tuple[Array, Array, Array]:
    """Groups whose results lie at ties of bfloat16: the second value is what is left of a tie."""
    draw = inputs.Draw(d + rows)
    own = draw.normal(2 * rows, 2, d)
    c, g = own[0::2, 0].astype(np.float64), own[:, 1].reshape(rows, 2, d).astype(np.float64)
    w = 1 / (1 + np.exp(g[:, ::-1] - g))
    own[1::2, 0] = (inputs.bf16_ties(draw.normal(rows, d, scale=2.0)) - c * w[:, 0]) / w[:, 1]
    return draw.normal(2, 2, d), own, (2 + np.arange(2 * rows, dtype=np.int32)).reshape(rows, 2)


def cases() -> list[Case]:
    """Every head size; groups that begin in an open pair or in the round; ties, extremes, far gates, infinities."""
    found = []
    for d, rows in ((64, 16), (512, 3)):
        draw = inputs.Draw(d)
        partner = np.stack([draw.integers(0, 3 + rows, rows), 3 + draw.integers(0, rows, rows)], 1)
        partner[0], partner[1] = (2, 3 + rows - 1), (3, 3)
        arrays = draw.normal(3, 2, d), draw.normal(rows, 2, d, scale=2.0), partner.astype(np.int32)
        found.append(Case(f"D{d}", arrays, rows=d == 64))
    found.append(Case("order", _near_ties(512, 24)))
    extreme = inputs.extremes_f32(96)
    each = np.array([(i, 15 - i) for i in range(16)], np.int32)
    calm, opened = inputs.Draw(2), np.zeros((1, 2, 96), f32)
    values = np.stack([extreme, calm.normal(16, 96)], 1)
    gates = np.stack([calm.normal(16, 96), extreme], 1)
    found.append(Case("extreme values", (opened, values, each + 1)))
    found.append(Case("extreme gates", (opened, gates, each + 1)))
    far = calm.normal(16, 2, 96)
    far[:, 1] = calm.uniform(-120, 120, 16, 96)
    found.append(Case("far gates", (opened, far, each + 1)))
    both = np.stack([extreme, extreme[::-1]], 1)
    found.append(Case("overflow", (opened, both, each + 1), bounded=False))
    return found


KERNELS = (
    Kernel(
        name="compress_pair",
        path=Path(__file__).with_name("compress_pair.metal"),
        inputs=("opened", "own", "partner"),
        outputs=("y",),
        geometries=({"width": 128, "E": 1}, {"width": 32, "E": 4}, {"width": 64, "E": 2}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16; a weight is off by two exponentials (2 ulp each), the rounding of their "
            "argument (below 0.4 * 2^-24, as x e^-x is) and a division; then two products and a sum: "
            "below 16 * 2^-24 of |c0| + |c1|",
            ulps=0.5,
            absolute=16 * 2.0**-24,
            scale=_magnitude,
        ),
        controls=(
            Control(
                "product and sum fused",
                "p_add(p_mulz(c[0], w0), p_mulz(c[1], w1))",
                "p_fma(c[0], w0, p_mulz(c[1], w1))",
            ),
            Control(
                "divided after the sum",
                "p_add(p_mulz(c[0], w0), p_mulz(c[1], w1))",
                "p_div(p_add(p_mulz(c[0], e0), p_mulz(c[1], e1)), t)",
            ),
            Control("weights swapped", "p_mulz(c[0], w0), p_mulz(c[1], w1)", "p_mulz(c[0], w1), p_mulz(c[1], w0)"),
            Control("maximum left out", "float m = p_max(g[0], g[1]);", "float m = 0.0f;"),
            Control("gate taken for value", "c[i] = p_load(pair[d]);", "c[i] = p_load(pair[uint(D) + d]);"),
            Control("one token twice", "partner[row * 2u + i]", "partner[row * 2u]"),
            Control("open pair past the last", "place < S ?", "place <= S ?", backends=("host",)),
            Control("tail missed", "if (d < uint(D)) {", "if (d + 32u < uint(D)) {"),
            Control("edge threads kept", "if (d < uint(D)) {", "{", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("partner",),
    ),
)
