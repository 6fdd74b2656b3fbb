"""hc_enter: the arrays it takes, and the launch. Knows no sublayer.

Source: docs/model.md#numbers and docs/model.md#hyper-connections: hc_mix of the streams' partial products,
hc_collapse_norm with the mix before, and its output through act_quant as planes. Truth and order: those of the three
kernels, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.hc_mix.plan import plan_hc_mix
from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, width: int, iterations: int = 20) -> Launch:
    """part [R, C, 25], base [24], scale [3], norm_eps [1], hc_eps [1] as hc_mix takes them, x [R, N, D] bfloat16,
    pre [R, N] float32 of the mix before, w [D] bfloat16, D a multiple of 32 -> own (this mix's pre), post [R, 4],
    comb [R, 4, 4] float32, h [R, D] bfloat16, q [R, 4, D / 16, 4] float32. `width`, `iterations`: those of hc_mix.
    """
    part, x, pre, w = arrays[0], *arrays[5:]
    try:
        mixed = plan_hc_mix(arrays[:5], {"height": 1}, width, iterations)
        rows, n, d = x.shape
    except ValueError as error:
        raise ValueError(f"hc_enter: {error}") from error
    if part.shape[0] != rows or tuple(pre.shape) != (rows, n) or tuple(w.shape) != (d,) or d % 32:
        raise ValueError(
            f"hc_enter: part {tuple(part.shape)}, pre {tuple(pre.shape)} and w {tuple(w.shape)} do not fit the streams "
            f"{tuple(x.shape)}, expected [R, C, 25], [R, N] and [D] for [R, N, D] with D a multiple of 32"
        )
    groups, each = geometry["G"], geometry["V"]
    threads = 32 * groups
    template = {"D": d, "N": n, **mixed.template, "G": groups, "V": each, "P": -(-d // (threads * each))}
    shapes = (*mixed.shapes, (rows, d), (rows, 4, d // 16, 4))
    return Launch(template, (2 * threads, rows, 1), (threads, 1, 1), shapes, (*mixed.dtypes, mx.bfloat16, mx.float32))


def choose(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """A long row in one pass of 640 threads, so that all of it is under way at once."""
    return 1 if arrays[5].shape[2] > 1024 else 0


def hc_enter(
    part: mx.array,
    base: mx.array,
    scale: mx.array,
    norm_eps: mx.array,
    hc_eps: mx.array,
    x: mx.array,
    pre: mx.array,
    w: mx.array,
    *,
    width: int,
    iterations: int,
    backend: str,
) -> tuple[mx.array, mx.array, mx.array, mx.array, mx.array]:
    """Launched on what `plan` describes."""
    arrays = part, base, scale, norm_eps, hc_eps, x, pre, w
    own, post, comb, h, q = KERNELS[0](*arrays, width=width, iterations=iterations, backend=backend)
    return own, post, comb, h, q


KERNELS = (
    Kernel(
        name="hc_enter",
        path=Path(__file__).with_name("hc_enter.metal"),
        inputs=("part", "base", "scale", "norm_eps", "hc_eps", "x", "pre", "w"),
        outputs=("own", "post", "comb", "h", "q"),
        geometries=({"G": 8, "V": 4}, {"G": 20, "V": 8}, {"G": 16, "V": 8}, {"G": 32, "V": 4}),
        plan=plan,
        alignment={"x": 8, "w": 8},
        choose=choose,
    ),
)
