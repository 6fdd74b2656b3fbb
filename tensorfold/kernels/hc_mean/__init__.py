"""The mean of a row's streams, which the drafter taps. Knows no layer."""

from tensorfold.kernels.hc_mean.plan import KERNELS

__all__ = ["KERNELS"]
