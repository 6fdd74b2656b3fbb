"""Attention with a sink over packed window and compressed rows, in two launches: scores, then values. Knows no slot."""

from tensorfold.kernels.attend.plan import KERNELS, Run, attend

__all__ = ["KERNELS", "Run", "attend"]
