"""The mixing weights of a row's streams: partial products of chunks, then what is made of them. Knows no sublayer."""

from tensorfold.kernels.hc_mix.plan import KERNELS, hc_dots

__all__ = ["KERNELS", "hc_dots"]
