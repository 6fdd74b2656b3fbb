"""A sublayer's output spread over the mixed streams: kernel, truth, stated order, mistakes. Knows no next mix.

Source: the model's specification, section 3, hcpost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import F32, f32, flush, fma, load, mul_flushed, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """y [R, D] bfloat16, x [R, N, D] bfloat16, post [R, N] and comb [R, N, N] float32 -> out [R, N, D] bfloat16."""
    y, x, post, comb = arrays
    rows, n, d = x.shape
    if tuple(y.shape) != (rows, d) or tuple(post.shape) != (rows, n) or tuple(comb.shape) != (rows, n, n):
        raise ValueError(
            f"hc_post: y {tuple(y.shape)}, post {tuple(post.shape)} and comb {tuple(comb.shape)} "
            f"do not fit the streams {tuple(x.shape)}"
        )
    width, each = geometry["width"], geometry["E"]
    grid = (-(-d // (width * each)) * width, rows, 1)
    return Launch({"D": d, "N": n, "E": each}, grid, (width, 1, 1), ((rows, n, d),), (mx.bfloat16,))


def reference(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        mixed = np.sum(wide(comb)[..., None] * wide(x)[:, :, None], 1)
        return [wide(post)[..., None] * wide(y)[:, None] + mixed]


def stated(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float32: the streams in order by fma, the output's product last."""
    v, c = load(x), load(comb)
    mixed = mul_flushed(c[:, 0, :, None], v[:, 0, None])
    with np.errstate(all="ignore"):
        for i in range(1, v.shape[1]):
            mixed = flush(fma(c[:, i, :, None], v[:, i, None], mixed))
        return [store_bf16(mixed + mul_flushed(load(post)[..., None], load(y)[:, None]))]


def magnitude(y: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    return reference(*(np.abs(load(a)) for a in (y, x, post, comb)))


def doubly_normal(draw: inputs.Draw, rows: int, n: int = 4) -> F32:
    """[rows, n, n] positive, rows and columns of sum near one, as the mix gives them."""
    c = draw.uniform(0.01, 1.0, rows, n, n).astype(np.float64)
    for axis in (2, 1) * 8:
        c = c / c.sum(axis, keepdims=True)
    return c.astype(f32)


def cases() -> list[Case]:
    """Every hidden size, cancelling streams, extremes, every kind of bit pattern."""
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 2)):
        draw = inputs.Draw(d)
        arrays = (draw.bf16(rows, d), draw.bf16(rows, 4, d), draw.uniform(0.0, 2.0, rows, 4), doubly_normal(draw, rows))
        found.append(Case(f"D{d}", arrays, rows=d == 96))
    draw = inputs.Draw(1)
    x, comb = draw.bf16(16, 4, 160), doubly_normal(draw, 16)
    x[:, 0] = draw.bf16(16, 160, scale=1000.0)
    x[:, 2], comb[:, 2] = x[:, 0] ^ np.uint16(0x8000), comb[:, 0]
    # of three large streams the last bits stay where they cancel: the order of the sum shows in few elements
    found.append(Case("cancelling", (draw.bf16(16, 160), x, draw.uniform(0.0, 2.0, 16, 4), comb)))
    y, post = x[:, 0].copy(), -np.tile(comb[:, :1, 0], (1, 4))
    x = draw.bf16(16, 4, 160)
    x[:, 0], comb = y, np.tile(comb[:, :1, :1], (1, 4, 4))
    found.append(Case("cancelled by the output", (y, x, post, comb)))
    wild = inputs.extremes_bf16(4 * 128).reshape(16, 4, 128)
    mixes = (draw.uniform(0.0, 2.0, 16, 4), doubly_normal(draw, 16))
    found.append(Case("extreme", (draw.bf16(16, 128), wild, *mixes)))
    found.append(Case("extreme output", (inputs.extremes_bf16(128), draw.bf16(16, 4, 128), *mixes)))
    tiny = (draw.bf16(4, 128, scale=2.0**-124), draw.bf16(4, 4, 128, scale=2.0**-124))
    found.append(Case("tiny", (*tiny, mixes[0][:4], mixes[1][:4])))
    words = [draw.words(4, *shape).view(f32) for shape in ((4,), (4, 4))]
    found.append(Case("any bits", (draw.any_bf16(4, 128), draw.any_bf16(4, 4, 128), *words), bounded=False))
    return found


_HEADER = "hc_post.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control("streams in another order", "p_fma(c[i], v[i], mixed)", "p_fma(c[N - i], v[N - i], mixed)", _HEADER),
    Control("product and sum not fused", "p_fma(c[i], v[i], mixed)", "p_add(p_mulz(c[i], v[i]), mixed)", _HEADER),
    Control("output's product fused", "p_add(mixed, p_mulz(post, own))", "p_fma(post, own, mixed)", _HEADER),
    Control("last stream missed", "i < N; i++", "i + 1 < N; i++", _HEADER),
    Control(
        "streams' sums not flushed",
        "p_flush(p_fma(c[i], v[i], mixed))",
        "p_fma(c[i], v[i], mixed)",
        _HEADER,
        ("host",),
    ),
)
# and of the text of every kernel that holds all of a row's weights
ROW_CONTROLS = (
    Control("comb transposed", "c[i % uint(N) * uint(N) + i / uint(N)]", "c[i]"),
    Control("one weight for all streams", "v, p[j], own)", "v, p[0], own)"),
    Control("tail missed", "if (d < uint(D)) {", "if (d + 32u < uint(D)) {"),
    Control("edge threads kept", "if (d < uint(D)) {", "{", backends=("host",)),
)

KERNEL = Kernel(
    name="hc_post",
    path=Path(__file__).with_name("hc_post.metal"),
    inputs=("y", "x", "post", "comb"),
    outputs=("out",),
    geometries=({"width": 128, "E": 1}, {"width": 256, "E": 1}, {"width": 64, "E": 2}, {"width": 32, "E": 3}),
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(
        "one rounding to bfloat16 (0.5 ulp); N + 2 rounded operations below the sum of the products' magnitudes, "
        "N = 4: 6 * 2^-24 of it; each of as many may be flushed",
        ulps=0.5,
        absolute=6 * 2.0**-24,
        tiny=6 * 2.0**-126,
        scale=magnitude,
    ),
    controls=CONTROLS + ROW_CONTROLS,
    cases=cases,
    row_inputs=("y", "x", "post", "comb"),
)
