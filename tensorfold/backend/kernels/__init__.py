"""The Backend on registered kernels: metal, cuda, and host as a proof tool."""

from tensorfold.backend.kernels.backend import KernelBackend

__all__ = ["KernelBackend"]
