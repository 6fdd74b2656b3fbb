"""Activations to FP8 or FP4 in blocks with a scale each. Knows no layer."""

from tensorfold.kernels.act_quant.plan import KERNELS, act_quant_fp8_planes, act_quant_fp8_round

__all__ = ["KERNELS", "act_quant_fp8_planes", "act_quant_fp8_round"]
