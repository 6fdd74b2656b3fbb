"""The gathered experts' matrices, FP4 read where they lie. Knows no routing."""

from tensorfold.kernels.experts.plan import KERNELS, experts_down, experts_up

__all__ = ["KERNELS", "experts_down", "experts_up"]
