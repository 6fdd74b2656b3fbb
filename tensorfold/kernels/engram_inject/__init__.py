"""Engram's value added to every stream through a gate. Knows no layer."""

from tensorfold.kernels.engram_inject.plan import KERNELS, engram_inject

__all__ = ["KERNELS", "engram_inject"]
