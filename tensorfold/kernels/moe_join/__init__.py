"""The experts' outputs and the shared one's, added. Knows no routing."""

from tensorfold.kernels.moe_join.plan import KERNELS, moe_join

__all__ = ["KERNELS", "moe_join"]
