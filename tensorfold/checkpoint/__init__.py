"""Checkpoints as published: strict headers, a memory map, tensors by name; knows no network."""

from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.inventory import TensorSpec, expected_tensors
from tensorfold.checkpoint.reader import Checkpoint

__all__ = ["Checkpoint", "CheckpointError", "TensorSpec", "expected_tensors"]
