"""The Backend in plain mx operations."""

from tensorfold.backend.ops.backend import OpsBackend
from tensorfold.backend.ops.probe import rows_are_independent

__all__ = ["OpsBackend", "rows_are_independent"]
