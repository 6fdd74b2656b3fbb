"""hc_collapse_norm: the arrays it takes, and the launch. Knows no layer.

Source: docs/model.md#hyper-connections, collapse: a float32 sum rounded to bfloat16, then RMSNorm of that.
Without `norm` the collapse alone, as the drafter's confidence reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, norm: bool = True) -> Launch:
    """x [R, N, D] bfloat16, pre [R, N] float32, w [D] bfloat16, eps [1] float32 -> y [R, D] bfloat16.

    Without `norm` neither w nor eps is read.
    """
    x, pre, w, _ = arrays
    rows, n, d = x.shape
    if tuple(pre.shape) != (rows, n) or (norm and tuple(w.shape) != (d,)):
        raise ValueError(
            f"hc_collapse_norm: pre {tuple(pre.shape)} and w {tuple(w.shape)} do not fit the streams {tuple(x.shape)}"
        )
    threads = 32 * geometry["G"]
    template = {"D": d, "N": n, "G": geometry["G"], "NORM": norm}
    return Launch(template, (rows * threads, 1, 1), (threads, 1, 1), ((rows, d),), (mx.bfloat16,))


def hc_collapse_norm(x: mx.array, pre: mx.array, w: mx.array | None, eps: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes; not normed where w is None."""
    given = x[0, 0] if w is None else w  # not read then
    return KERNELS[0](x, pre, given, eps, norm=w is not None, backend=backend)[0]


KERNELS = (
    Kernel(
        name="hc_collapse_norm",
        path=Path(__file__).with_name("hc_collapse_norm.metal"),
        inputs=("x", "pre", "w", "eps"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 2}, {"G": 32}),
        plan=plan,
    ),
)
