"""SwiGLU with clamps and the routing weight before the rounding. Knows no expert."""

from tensorfold.kernels.swiglu_weighted.plan import KERNELS, swiglu_weighted

__all__ = ["KERNELS", "swiglu_weighted"]
