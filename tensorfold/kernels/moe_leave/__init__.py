"""What stands after the experts as one launch, alone or with what the next mix adds. Knows no routing."""

from tensorfold.kernels.moe_leave.plan import KERNELS

__all__ = ["KERNELS"]
