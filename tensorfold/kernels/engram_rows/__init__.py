"""Engram rows from their bytes, e4m3 codes and UE8M0 scales, to bfloat16. Knows no table."""

from tensorfold.kernels.engram_rows.plan import KERNELS, engram_rows

__all__ = ["KERNELS", "engram_rows"]
