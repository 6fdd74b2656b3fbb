"""What stands after the experts as one launch, alone or with what the next mix adds. Knows no routing.

Source: the model's specification, sections 6 and 3.
"""

from tensorfold.kernels.moe_leave import dots, leave

__all__ = ["KERNELS"]

KERNELS = (leave.KERNEL, dots.KERNEL)
