"""Matrices times a few rows: FP8 in 32x32 blocks and bfloat16. Knows no layer."""

from tensorfold.kernels.matvec.plan import KERNELS, matvec_bf16, matvec_fp8, matvec_fp8_quantised

__all__ = ["KERNELS", "matvec_bf16", "matvec_fp8", "matvec_fp8_quantised"]
