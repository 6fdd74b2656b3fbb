"""RMSNorm over the last axis. Knows no layer."""

from tensorfold.kernels.rms_norm.plan import KERNELS, rms_norm

__all__ = ["KERNELS", "rms_norm"]
