"""The gathered experts' matrices, FP4 read where they lie. Knows no routing."""

from tensorfold.kernels.experts.plan import KERNELS

__all__ = ["KERNELS"]
