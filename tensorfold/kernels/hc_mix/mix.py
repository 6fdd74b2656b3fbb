"""From partial products to pre, post and the doubly normalised comb: the second kernel. Knows no streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import functions, inputs
from tensorfold.kernels.exact import F32, f32, flush, load, mul_flushed, store_f32, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

SCALE_OF = np.repeat([0, 1, 2], [4, 4, 16])


def plan(arrays: Sequence[Any], geometry: Geometry, width: int, iterations: int = 20) -> Launch:
    """part [R, C, 25], base [24], scale [3], norm_eps [1], hc_eps [1] -> pre, post [R, 4], comb [R, 4, 4], all float32.

    `width` is the number of elements whose squares place 24 has summed, `iterations` those of the double normalisation.
    """
    part, base, scale = arrays[:3]
    if len(part.shape) != 3 or part.shape[2] != 25 or tuple(base.shape) != (24,) or tuple(scale.shape) != (3,):
        raise ValueError(
            f"hc_mix: part {tuple(part.shape)}, base {tuple(base.shape)} and scale {tuple(scale.shape)}, "
            "expected [R, C, 25], [24] and [3]"
        )
    if width < 1 or iterations < 1:
        raise ValueError(f"hc_mix: width {width} and iterations {iterations} must be at least 1")
    rows = part.shape[0]
    # only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    template = {"C": part.shape[1], "K": width, "ITERATIONS": iterations}
    shapes = ((rows, 4), (rows, 4), (rows, 4, 4))
    return Launch(template, (32, rows, 1), (32, height, 1), shapes, (mx.float32,) * 3)


def reference(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """float64 truth."""
    e = wide(hc_eps)
    with np.errstate(all="ignore"):
        total = wide(part).sum(1)
        r = 1 / np.sqrt(total[:, 24:] / width + wide(norm_eps))
        v = total[:, :24] * r * wide(scale)[SCALE_OF] + wide(base)
        gate = 1 / (1 + np.exp(-v[:, :8]))
        c = v[:, 8:].reshape(-1, 4, 4)
        c = np.exp(c - c.max(2, keepdims=True))
        c = c / c.sum(2, keepdims=True) + e
        c = c / (c.sum(1, keepdims=True) + e)
        for _ in range(iterations - 1):
            c = c / (c.sum(2, keepdims=True) + e)
            c = c / (c.sum(1, keepdims=True) + e)
        return [gate[:, :4] + e, 2 * gate[:, 4:], c]


def _sum4(c: F32, axis: int) -> F32:
    a, b, d, e = np.moveaxis(c, axis, 0)
    return np.expand_dims((a + b) + (d + e), axis)


def stated(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """float32, in the order the source states."""
    p, e = load(part), f32(hc_eps[0])
    with np.errstate(all="ignore"):
        total = np.zeros((len(p), 25), f32)
        for chunk in range(p.shape[1]):
            total = flush(total + p[:, chunk])
        r = f32(1) / np.sqrt(total[:, 24:] / f32(width) + norm_eps[0])
        v = mul_flushed(mul_flushed(total[:, :24], r), scale[SCALE_OF]) + base
        gate = functions.sigmoid(v[:, :8])
        c = v[:, 8:].reshape(-1, 4, 4)
        c = functions.exp(c - c.max(2, keepdims=True))
        c = c / _sum4(c, 2) + e
        c = c / (_sum4(c, 1) + e)
        for _ in range(iterations - 1):
            c = c / (_sum4(c, 2) + e)
            c = c / (_sum4(c, 1) + e)
        return [store_f32(y) for y in (gate[:, :4] + e, f32(2) * gate[:, 4:], c)]


def sensitivity(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, width: int, iterations: int = 20
) -> list[Array]:
    """1 + how far an error of 2^-24 in every operation may move v, in units of 2^-24, for each output."""
    p = wide(part)
    with np.errstate(all="ignore"):
        r = 1 / np.sqrt(p[:, :, 24].sum(1, keepdims=True) / width + wide(norm_eps))
        size = np.abs(p[:, :, :24]).sum(1) * r * np.abs(wide(scale)[SCALE_OF])
        moved = size * (p.shape[1] + 6) + np.abs(wide(base))
        largest = moved[:, 8:].max(1)[:, None, None]
        return [1 + moved[:, :4] / 4, 1 + moved[:, 4:8] / 2, 4 * iterations + 2 * largest + np.zeros((len(p), 4, 4))]


def _parts(draw: inputs.Draw, rows: int, chunks: int, size: float = 1.0) -> F32:
    """Products and a positive sum of squares, so that v is of the size of `size`."""
    part = draw.normal(rows, chunks, 25, scale=size * (512 / chunks) ** 0.5)
    part[:, :, 24] = draw.uniform(400.0, 600.0, rows, chunks)
    return part


def cases() -> list[Case]:
    """Chunks of every hidden size; flat, steep and one-sided mixes; extremes; every kind of bit pattern."""
    norm_eps, hc_eps = np.array([1e-20], f32), np.array([1e-6], f32)
    found = []
    for chunks, rows in ((3, 16), (1, 3), (2, 3), (40, 5)):
        draw = inputs.Draw(chunks)
        arrays = (_parts(draw, rows, chunks, 0.3), draw.normal(24), draw.uniform(0.1, 2.0, 3), norm_eps, hc_eps)
        found.append(Case(f"C{chunks}", arrays, {"width": chunks * 512}, rows=chunks == 3))
    draw = inputs.Draw(77)
    for name, size in (("flat", 1e-4), ("steep", 4.0), ("saturated", 60.0)):
        arrays = (_parts(draw, 16, 1, size), draw.normal(24), np.ones(3, f32), norm_eps, hc_eps)
        found.append(Case(name, arrays, {"width": 512}))
    one = _parts(draw, 4, 1)
    found.append(
        Case(
            "one iteration", (one, draw.normal(24), np.ones(3, f32), norm_eps, hc_eps), {"width": 512, "iterations": 1}
        )
    )
    found.append(
        Case(
            "zeros", (np.zeros((2, 2, 25), f32), np.zeros(24, f32), np.ones(3, f32), norm_eps, hc_eps), {"width": 1024}
        )
    )
    tiny = (draw.normal(4, 3, 25, scale=2.0**-124), np.zeros(24, f32), draw.normal(3), norm_eps, hc_eps)
    tiny[0][:, :, 24] = 0.0
    found.append(Case("tiny", tiny, {"width": 1536}))
    wild = _parts(draw, 16, 2)
    wild[:, 0, :24] = inputs.extremes_f32(24)
    found.append(Case("extreme", (wild, draw.normal(24), draw.uniform(0.5, 1.0, 3), norm_eps, hc_eps), {"width": 1024}))
    words = draw.words(8, 2, 25).view(f32)
    found.append(
        Case("any bits", (words, draw.normal(24), np.ones(3, f32), norm_eps, hc_eps), {"width": 1024}, bounded=False)
    )
    return found


_HEADER = "hc_mix.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control("chunks in another order", "part[c * 25u + lane]", "part[(uint(C) - 1u - c) * 25u + lane]", _HEADER),
    Control("last chunk missed", "c < uint(C); c++", "c + 1u < uint(C); c++", _HEADER),
    Control(
        "sum of four in another order",
        "sum4(c, ushort(4), ushort(8)), e));\n  //",
        "sum4(c, ushort(8), ushort(4)), e));\n  //",
        _HEADER,
    ),
    Control(
        "rows and columns swapped first",
        "c = p_add(p_div(c, sum4(c, ushort(1), ushort(2))), e);",
        "c = p_add(p_div(c, sum4(c, ushort(4), ushort(8))), e);",
        _HEADER,
    ),
    Control("one turn too few", "i < ITERATIONS; i++", "i < ITERATIONS - 1; i++", _HEADER),
    Control("one turn too many", "int i = 1;", "int i = 0;", _HEADER),
    Control("no largest taken off", "p_exp(p_sub(c, top))", "p_exp(c)", _HEADER),
    Control("eps left out of pre", "p_add(gate, e)", "gate", _HEADER),
    Control("post not doubled", "p_mul(2.0f, gate)", "gate", _HEADER),
    Control("post takes pre's scale", "lane < 4u ? 0u : lane < 8u ? 1u : 2u", "lane < 8u ? 0u : 2u", _HEADER),
    Control("comb written by too many lanes", "if (lane < 16u)", "if (lane < 17u)", _HEADER, ("host",)),
    Control("reads beyond the products", "if (lane < 25u) {", "if (lane < 26u) {", _HEADER, ("host",)),
)

KERNEL = Kernel(
    name="hc_mix",
    path=Path(__file__).with_name("hc_mix.metal"),
    inputs=("part", "base", "scale", "norm_eps", "hc_eps"),
    outputs=("pre", "post", "comb"),
    geometries=({"height": 4}, {"height": 1}, {"height": 16}),
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(
        "v is off by C + 6 roundings of its products and one of its base; a sigmoid's slope is 1/4 and its own error 2 "
        "ulp; a normalisation never widens relative errors, adds four roundings, and there are 2 a turn below 1",
        ulps=0.5,
        absolute=6 * 2.0**-24,
        scale=sensitivity,
    ),
    controls=CONTROLS,
    cases=cases,
    row_inputs=("part",),
)
