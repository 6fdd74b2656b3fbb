"""engram_rows: the arrays it takes, and the launch. Knows no table.

Source: docs/model.md#engram (24 rows of 256 a token in the published model).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """codes uint8 [R, n, d], scales uint8 [R, n, d / 32] -> y bfloat16 [R, n d]."""
    codes, scales = arrays
    if len(codes.shape) != 3 or codes.shape[2] % 32 or scales.shape != (*codes.shape[:2], codes.shape[2] // 32):
        raise ValueError(
            f"engram_rows: codes {tuple(codes.shape)} and scales {tuple(scales.shape)} do not fit: "
            "expected [R, n, d] and [R, n, d / 32]"
        )
    rows, width = codes.shape[0], codes.shape[1] * codes.shape[2]
    lanes = width // geometry["V"]
    threads = 32 * min(geometry["G"], -(-lanes // 32))
    parts = -(-lanes // threads)
    template = {"W": width, "V": geometry["V"], "P": parts}
    return Launch(template, (rows * parts * threads, 1, 1), (threads, 1, 1), ((rows, width),), (mx.bfloat16,))


def engram_rows(codes: mx.array, scales: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](codes, scales, backend=backend)[0]


KERNELS = (
    Kernel(
        name="engram_rows",
        path=Path(__file__).with_name("engram_rows.metal"),
        inputs=("codes", "scales"),
        outputs=("y",),
        geometries=({"V": 4, "G": 8}, {"V": 1, "G": 2}, {"V": 8, "G": 4}, {"V": 32, "G": 1}),
        plan=plan,
    ),
)
