"""The quantisers that no model launches: each format apart, packed and back, as launched kernels do it on their way.

They judge the headers of blocks by themselves, with every mistake planted in them. Knows no mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.act_quant.plan import FP8, FP8_BLOCK, plan_blocks
from tensorfold.kernels.kernel import Geometry, Kernel, Launch

FP4_E4M3 = ({"V": 4, "G": 4}, {"V": 2, "G": 1}, {"V": 8, "G": 2})
FP4_E8M0 = ({"V": 4, "G": 8}, {"V": 2, "G": 1}, {"V": 8, "G": 2})


def _plan(
    arrays: Sequence[Any], geometry: Geometry, *, name: str, block: int, widths: Callable[[int], Sequence[int]],
    dtype: mx.Dtype,
) -> Launch:  # fmt: skip
    return plan_blocks(name, arrays[0], geometry, block, widths(arrays[0].shape[-1]), dtype)


def _kernels(name: str, geometries: Sequence[Geometry], block: int, codes: int, *kinds: str) -> tuple[Kernel, ...]:
    """Those of a format: `codes` elements share a byte."""
    outputs = {"": ("codes", "scales"), "_pack": ("packed",), "_round": ("y",)}
    widths: dict[str, Callable[[int], Sequence[int]]] = {
        "": lambda k: (k // codes, k // block),
        "_pack": lambda k: (k // codes + k // block,),
        "_round": lambda k: (k,),
    }
    return tuple(
        Kernel(
            name=f"{name}{kind}",
            path=Path(__file__).with_name(f"{name}{kind}.metal"),
            inputs=("x",),
            outputs=outputs[kind],
            geometries=tuple(geometries),
            plan=partial(
                _plan,
                name=f"{name}{kind}",
                block=block,
                widths=widths[kind],
                dtype=mx.bfloat16 if kind == "_round" else mx.uint8,
            ),  # fmt: skip
        )
        for kind in kinds
    )


KERNELS = (
    *_kernels("act_quant_fp4_e4m3", FP4_E4M3, 16, 2, "", "_pack", "_round"),
    *_kernels("act_quant_fp4_e8m0", FP4_E8M0, 32, 2, "", "_pack", "_round"),
    *_kernels("act_quant_fp8", FP8, FP8_BLOCK, 1, "", "_pack"),
)
