"""What stands before a sublayer as one launch: mix, collapse, norm, quantise. Knows no sublayer."""

from tensorfold.kernels.hc_enter.plan import KERNELS

__all__ = ["KERNELS"]
