"""What stands before a sublayer as one launch: mix, collapse, norm, quantise. Knows no sublayer."""

from tensorfold.kernels.hc_enter.plan import KERNELS, hc_enter

__all__ = ["KERNELS", "hc_enter"]
