"""A sublayer's output spread over the mixed streams, alone or with what the next mix adds. Knows no sublayer.

Source: the model's specification, section 3, hcpost.
"""

from tensorfold.kernels.hc_post import dots, post
from tensorfold.kernels.hc_post.post import doubly_normal

__all__ = ["KERNELS", "doubly_normal"]

KERNELS = (post.KERNEL, dots.KERNEL)
