"""The Backend in plain mx operations."""

from tensorfold.backend.ops.backend import OpsBackend

__all__ = ["OpsBackend"]
