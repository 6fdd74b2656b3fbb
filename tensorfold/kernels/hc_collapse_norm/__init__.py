"""The streams collapsed to one and normed. Knows no layer."""

from tensorfold.kernels.hc_collapse_norm.plan import KERNELS

__all__ = ["KERNELS"]
