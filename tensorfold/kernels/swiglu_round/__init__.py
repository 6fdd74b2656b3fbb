"""SwiGLU of routed and shared experts, quantised for the next matrices in the same launch. Knows no expert."""

from tensorfold.kernels.swiglu_round.plan import KERNELS, swiglu_round

__all__ = ["KERNELS", "swiglu_round"]
