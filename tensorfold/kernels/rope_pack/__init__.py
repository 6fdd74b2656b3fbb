"""Rows normed or not, turned and packed for a cache, in one launch; index queries too. Knows no cache."""

from tensorfold.kernels.rope_pack.plan import KERNELS, norm_rope_pack

__all__ = ["KERNELS", "norm_rope_pack"]
