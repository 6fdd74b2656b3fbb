"""The Backend on registered kernels: metal, cuda, and host as a proof tool."""

from tensorfold.backend.kernels.backend import KernelBackend
from tensorfold.backend.kernels.check import row_dependent_operations

__all__ = ["KernelBackend", "row_dependent_operations"]
