"""A sublayer's output spread over the mixed streams, alone or with what the next mix adds. Knows no sublayer."""

from tensorfold.kernels.hc_post.plan import KERNELS

__all__ = ["KERNELS"]
