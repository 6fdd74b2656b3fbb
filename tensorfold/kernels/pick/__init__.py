"""The pick in two launches: the best token of each part, then the best part. Knows no filter."""

from tensorfold.kernels.pick.plan import KERNELS

__all__ = ["KERNELS"]
