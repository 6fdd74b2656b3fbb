"""norm_rope_pack: the arrays it takes, and the launch. Knows no cache.

Source: docs/model.md#numbers. A composition of `rms_norm`, `rope` and a format's pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch

KINDS = ("window", "compressed", "key")


def packed_bytes(kind: str, d: int) -> int:
    """Bytes of a packed row of d elements; ValueError where there is no such kind."""
    if kind not in KINDS:
        raise ValueError(f"norm_rope_pack: kind {kind!r}, expected one of {', '.join(KINDS)}")
    return {"window": d + d // 32, "compressed": d // 2 + d // 16, "key": d // 2 + d // 32}[kind]


def plan(arrays: Sequence[Any], geometry: Geometry, kind: str = "window", norm: bool = True) -> Launch:
    """x [R, (H,) D], w [D] bfloat16, table [R, RD / 2, 2], eps [1] float32 -> packed uint8 [R, (H,) bytes].

    Without `norm` w and eps are not read; w then is any bfloat16 array of 8 elements or more.
    """
    x, w, table, _ = arrays
    shape, turned = tuple(x.shape), 2 * table.shape[1]
    rows, d, heads = shape[0], shape[-1], shape[1] if len(shape) == 3 else 1
    fits = tuple(w.shape) == (d,) if norm else int(np.prod(w.shape)) >= 8
    angles = tuple(table.shape) == (rows, turned // 2, 2) and 8 <= turned <= d
    if len(shape) not in (2, 3) or not fits or not angles or d % 32:
        raise ValueError(
            f"norm_rope_pack: x {shape}, w {tuple(w.shape)} and table {tuple(table.shape)} do not fit (norm={norm})"
        )
    width = packed_bytes(kind, d)
    groups = min(geometry["G"], -(-d // geometry["V"] // 32))
    template = {
        "H": heads, "D": d, "RD": turned, "G": groups, "V": geometry["V"], "FORM": KINDS.index(kind), "NORM": norm,
    }  # fmt: skip
    grid, threads = (heads * 32 * groups, rows, 1), (32 * groups, 1, 1)
    return Launch(template, grid, threads, ((*shape[:-1], width),), (mx.uint8,))


def norm_rope_pack(
    x: mx.array, w: mx.array | None, table: mx.array, eps: mx.array, *, kind: str, backend: str
) -> mx.array:
    """bfloat16 [R, (H,) D] -> packed uint8 [R, (H,) bytes]; normed by w [D] unless it is None, turned by `table`."""
    given = x if w is None else w
    return KERNELS[0](x, given, table, eps, backend=backend, kind=kind, norm=w is not None)[0]


KERNELS = (
    Kernel(
        name="norm_rope_pack",
        path=Path(__file__).with_name("norm_rope_pack.metal"),
        inputs=("x", "w", "table", "eps"),
        outputs=("packed",),
        geometries=({"G": 4, "V": 4}, {"G": 8, "V": 2}, {"G": 1, "V": 8}),
        plan=plan,
    ),
)
