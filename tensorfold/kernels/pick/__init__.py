"""The pick in two launches: the best token of each part, then the best part. Knows no filter."""

from tensorfold.kernels.pick.plan import KERNELS, pick, pick_parts

__all__ = ["KERNELS", "pick", "pick_parts"]
