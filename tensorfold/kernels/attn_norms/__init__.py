"""Queries' and keys' norms with what follows each, in one launch: FP8 planes and packed window rows. Knows no cache."""

from tensorfold.kernels.attn_norms.plan import KERNELS, attn_norms

__all__ = ["KERNELS", "attn_norms"]
