"""hc_post and hc_post_dots: the arrays they take, and the launch. Knows no sublayer.

Source: docs/model.md#hyper-connections. Truth and order are those of hc_post, then those of hc_dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.hc_mix.plan import CHUNK
from tensorfold.kernels.kernel import Geometry, Kernel, Launch

GEOMETRIES = ({"width": 128, "E": 1}, {"width": 256, "E": 1}, {"width": 64, "E": 2}, {"width": 32, "E": 3})
WITH_PRODUCTS = (
    {"G": 16, "B": 2, "height": 1},
    {"G": 16, "B": 2, "height": 4},
    {"G": 8, "B": 2, "height": 2},
    {"G": 5, "B": 3, "height": 1},
)


def plan_hc_post(arrays: Sequence[Any], geometry: Geometry) -> Launch:
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


def streams_and_products(name: str, x: Any, fn: Any, geometry: Geometry, **more: int) -> Launch:
    """Streams x [R, N, D], fn [M, N D] float32 -> new streams [R, N, D], part [R, ceil(N D / 512), M + 1] float32.

    `more` are template values between N and M.
    """
    rows, n, d = x.shape
    if len(fn.shape) != 2 or fn.shape[1] != n * d:
        raise ValueError(f"{name}: fn has shape {tuple(fn.shape)}, expected [M, {n * d}] for streams {tuple(x.shape)}")
    m, chunks = fn.shape[0], -(-n * d // CHUNK)
    # only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    template = {"D": d, "N": n, **more, "M": m, "G": geometry["G"], "B": geometry["B"], "H": height}
    threads = 32 * geometry["G"]
    shapes = ((rows, n, d), (rows, chunks, m + 1))
    return Launch(template, (chunks * threads, rows // height, 1), (threads, 1, 1), shapes, (mx.bfloat16, mx.float32))


def plan_hc_post_dots(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """hc_post's inputs, fn [M, N D] float32 -> out [R, N, D] bfloat16, part [R, ceil(N D / 512), M + 1] float32."""
    try:
        plan_hc_post(arrays[:4], {"width": 32, "E": 1})
    except ValueError as error:
        raise ValueError(f"hc_post_dots: {error}") from error
    return streams_and_products("hc_post_dots", arrays[1], arrays[4], geometry)


def choose_hc_post_dots(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows need every threadgroup there can be; more of them share what is read of fn."""
    return 0 if arrays[0].shape[0] < 8 else 1


def hc_post(y: mx.array, x: mx.array, post: mx.array, comb: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan_hc_post` describes."""
    return KERNELS[0](y, x, post, comb, backend=backend)[0]


def hc_post_dots(
    y: mx.array, x: mx.array, post: mx.array, comb: mx.array, fn: mx.array, *, backend: str
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan_hc_post_dots` describes."""
    out, part = KERNELS[1](y, x, post, comb, fn, backend=backend)
    return out, part


KERNELS = (
    Kernel(
        name="hc_post",
        path=Path(__file__).with_name("hc_post.metal"),
        inputs=("y", "x", "post", "comb"),
        outputs=("out",),
        geometries=GEOMETRIES,
        plan=plan_hc_post,
    ),
    Kernel(
        name="hc_post_dots",
        path=Path(__file__).with_name("hc_post_dots.metal"),
        inputs=("y", "x", "post", "comb", "fn"),
        outputs=("out", "part"),
        geometries=WITH_PRODUCTS,
        plan=plan_hc_post_dots,
        choose=choose_hc_post_dots,
    ),
)
