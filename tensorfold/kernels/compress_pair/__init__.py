"""The two tokens of a ratio-2 group pooled before the norm. Knows no slot."""

from tensorfold.kernels.compress_pair.plan import KERNELS, compress_pair

__all__ = ["KERNELS", "compress_pair"]
