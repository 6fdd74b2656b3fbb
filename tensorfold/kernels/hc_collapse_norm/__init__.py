"""The streams collapsed to one and normed. Knows no layer."""

from tensorfold.kernels.hc_collapse_norm.plan import KERNELS, hc_collapse_norm

__all__ = ["KERNELS", "hc_collapse_norm"]
