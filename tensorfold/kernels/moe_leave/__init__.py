"""What stands after the experts as one launch, alone or with what the next mix adds. Knows no routing."""

from tensorfold.kernels.moe_leave.plan import KERNELS, moe_leave, moe_leave_dots

__all__ = ["KERNELS", "moe_leave", "moe_leave_dots"]
