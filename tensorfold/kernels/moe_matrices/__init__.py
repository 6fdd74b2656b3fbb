"""The routed experts' and the shared expert's matrices in one launch. Knows no routing."""

from tensorfold.kernels.moe_matrices.plan import KERNELS, moe_down, moe_up

__all__ = ["KERNELS", "moe_down", "moe_up"]
