"""A sublayer's output spread over the mixed streams, alone or with what the next mix adds. Knows no sublayer."""

from tensorfold.kernels.hc_post.plan import KERNELS, hc_post, hc_post_dots

__all__ = ["KERNELS", "hc_post", "hc_post_dots"]
