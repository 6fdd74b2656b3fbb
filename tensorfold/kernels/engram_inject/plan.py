"""engram_inject: the arrays it takes, and the launch. Knows no layer.

Source: docs/model.md#engram.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D], kv [R, (N + 1) D], q and k [N, D] bfloat16, eps and root [1] float32 -> y [R, N, D] bfloat16."""
    x, kv, q, k, _, _ = arrays
    rows, n, d = x.shape
    if kv.shape != (rows, (n + 1) * d) or q.shape != (n, d) or k.shape != (n, d):
        raise ValueError(
            f"engram_inject: kv {tuple(kv.shape)}, q {tuple(q.shape)} and k {tuple(k.shape)} do not fit x "
            f"{tuple(x.shape)}: expected {(rows, (n + 1) * d)}, {(n, d)} and {(n, d)}"
        )
    threads = 32 * geometry["G"]
    template = {"N": n, "D": d, "G": geometry["G"]}
    return Launch(template, (rows * n * threads, 1, 1), (threads, 1, 1), ((rows, n, d),), (mx.bfloat16,))


def engram_inject(
    x: mx.array, kv: mx.array, q: mx.array, k: mx.array, eps: mx.array, root: mx.array, *, backend: str
) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](x, kv, q, k, eps, root, backend=backend)[0]


KERNELS = (
    Kernel(
        name="engram_inject",
        path=Path(__file__).with_name("engram_inject.metal"),
        inputs=("x", "kv", "q", "k", "eps", "root"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 4}, {"G": 2}, {"G": 1}),
        plan=plan,
    ),
)
