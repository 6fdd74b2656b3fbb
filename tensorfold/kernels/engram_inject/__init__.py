"""Engram's value added to every stream through a gate. Knows no layer."""

from tensorfold.kernels.engram_inject.plan import KERNELS

__all__ = ["KERNELS"]
