"""Matrices times 1 to 16 rows: FP8 in 32x32 blocks and bfloat16. Knows no layer.

The same stated order for every row count, place and geometry; float32 sums, outputs bfloat16 or float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from tensorfold.kernels.matvec import dense, fp8, quantised

__all__ = ["KERNELS", "matvec_bf16", "matvec_fp8"]

KERNELS = (*fp8.KERNELS, *quantised.KERNELS, *dense.KERNELS)


def matvec_fp8(
    weights: Sequence[tuple[mx.array, mx.array]], x: mx.array, *, backend: str, out: str = "bfloat16", width: int = 16
) -> list[mx.array]:
    """One to three (codes uint8 [N, K], scales uint8 [ceil(N / 32), K / 32]) times x: y [rows, N] of each, one launch.

    x holds decoded activations: float32 planes of act_quant_fp8_planes, or bfloat16 [rows, K]; with G K elements a row,
    a single matrix is G groups of rows with a part of x each. `width` is the largest of 16 and 8 that divides the
    address of every matrix. Raises ValueError where shapes do not fit or there are more than three matrices.
    """
    if not 1 <= len(weights) <= len(fp8.KERNELS):
        raise ValueError(f"matvec_fp8: {len(weights)} matrices, expected 1 to {len(fp8.KERNELS)}")
    arrays = [array for pair in weights for array in pair]
    return fp8.KERNELS[len(weights) - 1](*arrays, x, backend=backend, out=out, width=width)


def matvec_bf16(w: mx.array, x: mx.array, *, backend: str, out: str = "float32", width: int = 16) -> mx.array:
    """w bfloat16 [N, K] times x bfloat16 or float32 [rows, K] -> [rows, N] of `out`; `width` as for matvec_fp8."""
    return dense.KERNELS[0](w, x, backend=backend, out=out, width=width)[0]
