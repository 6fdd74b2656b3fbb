"""The mean of a row's streams, which the drafter taps. Knows no layer."""

from tensorfold.kernels.hc_mean.plan import KERNELS, hc_mean

__all__ = ["KERNELS", "hc_mean"]
