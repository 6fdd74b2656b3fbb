"""Rows of the embedding table by token id: the kernel beside its truth and its planted mistakes. Knows no tokenizer.

Source: the model's specification, section 3, step 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import load, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """ids [R] int32 in 0..V-1, table [V, D] bfloat16 -> y [R, D] bfloat16."""
    ids, table = arrays
    if len(ids.shape) != 1 or len(table.shape) != 2:
        raise ValueError(f"embed: ids {tuple(ids.shape)} and table {tuple(table.shape)}, expected [R] and [V, D]")
    rows, d, width = ids.shape[0], table.shape[1], geometry["width"]
    return Launch({"D": d}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def reference(ids: Array, table: Array) -> list[Array]:
    """The rows themselves."""
    return [wide(table)[ids]]


def stated(ids: Array, table: Array) -> list[Array]:
    """The rows' bits, as a load and a store leave them."""
    return [store_bf16(load(table))[ids]]


def cases() -> list[Case]:
    """Every hidden size; ids repeated, first and last; every kind of bit pattern."""
    found = []
    for d, rows, vocabulary in ((96, 16, 50), (128, 16, 64), (256, 3, 512), (5120, 2, 8)):
        draw = inputs.Draw(d)
        ids = draw.integers(0, vocabulary, rows)
        ids[0], ids[-1] = vocabulary - 1, 0
        found.append(Case(f"D{d}", (ids, draw.bf16(vocabulary, d)), rows=d == 96))
    draw = inputs.Draw(1)
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(64, 1024)
    found.append(Case("every bit pattern", (np.arange(64, dtype=np.int32)[::-1].copy(), every)))
    found.append(Case("extreme", (draw.integers(0, 16, 9), inputs.extremes_bf16(160))))
    return found


KERNELS = (
    Kernel(
        name="embed",
        path=Path(__file__).with_name("embed.metal"),
        inputs=("ids", "table"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound("values are copied; a subnormal becomes zero", ulps=0.0),
        controls=(
            Control("row after the token's", "table[ulong(ids[row])", "table[ulong(ids[row] ^ 1)"),
            Control("the first token's row for all", "ids[row]", "ids[0]"),
            Control("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
            Control("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
            Control(
                "bits copied, subnormals kept",
                "p_store(y + ulong(row) * uint(D) + d, p_load(table[ulong(ids[row]) * uint(D) + d]));",
                "y[ulong(row) * uint(D) + d] = table[ulong(ids[row]) * uint(D) + d];",
            ),
        ),
        cases=cases,
        row_inputs=("ids",),
    ),
)
