"""Engram rows from their bytes: e4m3 codes and UE8M0 scales to bfloat16. Knows no table: the rows have been gathered.

Source: the model's specification, section 4 (24 rows of 256 a token in the published model).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.codes import E4M3, UE8M0
from tensorfold.kernels.exact import mul_flushed, store_bf16
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


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


def reference(codes: Array, scales: Array) -> list[Array]:
    """float64: the code's value times the scale's."""
    with np.errstate(all="ignore"):
        y = E4M3[codes].reshape(*scales.shape, 32).astype(np.float64) * UE8M0[scales][..., None].astype(np.float64)
    return [y.reshape(len(codes), -1)]


def stated(codes: Array, scales: Array) -> list[Array]:
    """float32: one product, stored as bfloat16."""
    y = mul_flushed(E4M3[codes].reshape(*scales.shape, 32), UE8M0[scales][..., None])
    return [store_bf16(y).reshape(len(codes), -1)]


def cases() -> list[Case]:
    """The rows of every config; every code under every scale."""
    found = []
    for n, d in ((24, 256), (12, 32), (6, 32)):
        draw = inputs.Draw(n)
        rows = 16 if n == 6 else 2
        scales = draw.integers(110, 135, rows, n, d // 32).astype(np.uint8)
        found.append(Case(f"{n}x{d}", (draw.bytes(rows, n, d), scales), rows=n == 6))
    codes = np.tile(np.arange(256, dtype=np.uint8), (16, 16, 1))
    scales = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 8, axis=2)
    found.append(Case("every code and scale", (codes, scales)))
    found.append(Case("zeros", (np.zeros((1, 6, 32), np.uint8), np.zeros((1, 6, 1), np.uint8))))
    return found


KERNELS = (
    Kernel(
        name="engram_rows",
        path=Path(__file__).with_name("engram_rows.metal"),
        inputs=("codes", "scales"),
        outputs=("y",),
        geometries=({"V": 4, "G": 8}, {"V": 1, "G": 2}, {"V": 8, "G": 4}, {"V": 32, "G": 1}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound("a product of 4 significant bits, which bfloat16 holds exactly; below 2^-126 it is zero", ulps=0.0),
        controls=(
            Control("next block's scale", "at / 32u]", "(at + 16u) / 32u % uint(W / 32)]"),
            Control("scale of the row's first block", " + at / 32u]", "]"),
            Control(
                "scale one power off",
                "p_float(s == 255u ? 0x7fc00000u : s << 23)",
                "p_float((s + 1u) << 23)",
                file="codes.h",
            ),
            Control("NaN scale read as infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
            Control("threads past the end kept", "if (at >= uint(W)) return;", "", backends=("host",)),
            Control("tail missed", "at >= uint(W)", "at + uint(V) >= uint(W)"),
        ),
        cases=cases,
        row_inputs=("codes", "scales"),
    ),
)
