"""Activations to FP8 or FP4 in blocks with a scale each. Knows no layer."""

from tensorfold.kernels.act_quant.plan import KERNELS

__all__ = ["KERNELS"]
