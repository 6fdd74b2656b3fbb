"""RMSNorm over the last axis. Knows no layer."""

from tensorfold.kernels.rms_norm.plan import KERNELS

__all__ = ["KERNELS"]
