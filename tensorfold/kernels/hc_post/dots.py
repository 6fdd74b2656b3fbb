"""hc_post with the partial products that the next mix adds: kernel, truth, stated order, mistakes. Knows no sublayer.

Source: the model's specification, section 3. Truth and order are those of hc_post, then those of hc_dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, load, store_bf16, wide
from tensorfold.kernels.hc_mix import dots
from tensorfold.kernels.hc_post import post as alone
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

GEOMETRIES = (
    {"G": 16, "B": 2, "height": 1},
    {"G": 16, "B": 2, "height": 4},
    {"G": 8, "B": 2, "height": 2},
    {"G": 5, "B": 3, "height": 1},
)


def launch(name: str, x: Any, fn: Any, geometry: Geometry, **more: int) -> Launch:
    """Streams x [R, N, D], fn [M, N D] float32 -> new streams [R, N, D], part [R, ceil(N D / 512), M + 1] float32.

    `more` are template values between N and M.
    """
    rows, n, d = x.shape
    if len(fn.shape) != 2 or fn.shape[1] != n * d:
        raise ValueError(f"{name}: fn has shape {tuple(fn.shape)}, expected [M, {n * d}] for streams {tuple(x.shape)}")
    m, chunks = fn.shape[0], -(-n * d // dots.CHUNK)
    # only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    template = {"D": d, "N": n, **more, "M": m, "G": geometry["G"], "B": geometry["B"], "H": height}
    threads = 32 * geometry["G"]
    shapes = ((rows, n, d), (rows, chunks, m + 1))
    return Launch(template, (chunks * threads, rows // height, 1), (threads, 1, 1), shapes, (mx.bfloat16, mx.float32))


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """hc_post's inputs, fn [M, N D] float32 -> out [R, N, D] bfloat16, part [R, ceil(N D / 512), M + 1] float32."""
    try:
        alone.plan(arrays[:4], {"width": 32, "E": 1})
    except ValueError as error:
        raise ValueError(f"hc_post_dots: {error}") from error
    return launch("hc_post_dots", arrays[1], arrays[4], geometry)


def choose(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows need every threadgroup there can be; more of them share what is read of fn."""
    return 0 if arrays[0].shape[0] < 8 else 1


def reference(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float64, with the published rounding of the streams."""
    return with_products(alone.reference(y, x, post, comb)[0], fn)


def stated(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (out,) = alone.stated(y, x, post, comb)
    return [out, *dots.stated(out, fn)]


def with_products(out: Array, fn: Array) -> list[Array]:
    """New streams in float64, and the products of their bfloat16 values."""
    with np.errstate(all="ignore"):
        return [out, *dots.reference(store_bf16(out.astype(f32)), fn)]


def with_drift(out: Array, error: Array, fn: Array) -> list[Array]:
    """`error` of the new streams, and how far their products may be off: where it crosses an edge of bfloat16."""
    bound = dots.KERNEL.bound
    with np.errstate(all="ignore"):
        low, high = (load(store_bf16((out + side * error).astype(f32))).astype(np.float64) for side in (-1, 1))
        step, largest = high - low, store_bf16(np.maximum(np.abs(low), np.abs(high)).astype(f32))
        (moved,) = dots.reference(store_bf16(step.astype(f32)), np.abs(fn))
        (size,) = dots.magnitude(largest, fn)
        # of the square 2 |v| step: a product of the two
        both = np.abs(wide(largest)).reshape(len(out), -1) * step.reshape(len(out), -1)
        both = np.pad(both, ((0, 0), (0, -both.shape[1] % dots.CHUNK))).reshape(*size.shape[:2], -1).sum(-1)
        moved[..., -1] = 2 * both
        return [error, bound.absolute * size + bound.tiny + 1.01 * moved]


def _allowance(y: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    (out,) = alone.reference(y, x, post, comb)
    (size,) = alone.magnitude(y, x, post, comb)
    return with_drift(out, alone.KERNEL.bound.absolute * size + alone.KERNEL.bound.tiny, fn)


WHY = (
    "half a step, and what the bounds of the streams' kernel and of hc_dots say; where a stream crosses an edge of "
    "bfloat16 its step times its factor, 1% more for the rounding of the step itself"
)
_HEADER = "post_dots.h"
CONTROLS = (
    *alone.CONTROLS,
    *dots.CONTROLS,
    Control("comb transposed", "(row * uint(N) + i) * uint(N) + j", "(row * uint(N) + j) * uint(N) + i", _HEADER),
    Control("one weight for all streams", "p_load(post[row * uint(N) + j])", "p_load(post[row * uint(N)])", _HEADER),
    Control("products of streams not rounded", "p_round_bf(spread", "(spread", _HEADER),
    Control("barrier dropped", "  P_BARRIER();\n", "", _HEADER, ("host",)),
    Control("end of the row missed", "if (first + i < width) dots", "if (first + i + 1u < width) dots", _HEADER),
    Control("beyond the row", "if (at < width) {", "{", _HEADER, ("host",)),
    Control("another row's products", "held[h * 512u + i]", "held[i]", _HEADER),
    Control("factors of the first places", "if (start <= uint(M)) dots_factors", "if (false) dots_factors", _HEADER),
    Control("factors beyond the row read", "i < uint(K) && start", "start", "hc_dots.h", ("host",)),
)


def with_fn(cases: Sequence[Case]) -> list[Case]:
    """Cases of a kernel that makes streams, with factors drawn for them; few places where the streams are few."""
    found = []
    for seed, case in enumerate(cases):
        out = next(a for a in case.arrays if a.dtype == np.uint16 and a.ndim == 3 and a.shape[1] == 4)
        draw = inputs.Draw(1000 + seed)
        m, width = (24 if out.shape[2] in (128, 5120) else 6), 4 * out.shape[2]
        fn = draw.normal(m, width, scale=0.02) if case.bounded else draw.words(m, width).view(f32)
        # every count of rows once is enough
        rows = case.rows and out.shape[2] == 96
        found.append(Case(case.name, (*case.arrays, fn), case.options, rows, case.bounded))
    return found


KERNEL = Kernel(
    name="hc_post_dots",
    path=Path(__file__).with_name("hc_post_dots.metal"),
    inputs=("y", "x", "post", "comb", "fn"),
    outputs=("out", "part"),
    geometries=GEOMETRIES,
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(WHY, ulps=0.5, absolute=1.0, scale=_allowance),
    controls=CONTROLS,
    cases=lambda: with_fn(alone.cases()),
    row_inputs=("y", "x", "post", "comb"),
    choose=choose,
)
