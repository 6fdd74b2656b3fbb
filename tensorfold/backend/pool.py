"""Memory for experts that come and go: entries, one each, that the host fills; knows no kernel and no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import mlx.core as mx
import numpy as np

Shapes = Sequence[tuple[int, ...]]
# an expert's tensors, in the order in which a room takes shapes and gives memory
LEAVES = tuple(f"{matrix}.{leaf}" for matrix in ("w1", "w3", "w2") for leaf in ("weight", "scale"))


Weight = TypeVar("Weight", covariant=True)


class Room(Protocol[Weight]):
    """Memory for so many experts; `weight` is what the backend's `experts` takes, with an entry for each expert id."""

    @property
    def weight(self) -> Weight: ...
    def parts(self, entry: int) -> list[np.ndarray]:
        """Flat uint8 arrays to be filled with the tensors of LEAVES, while nothing that reads the entry is running."""

    def filled(self, entries: Sequence[int]) -> None:
        """Makes what was written into these entries what `weight` holds."""


def shares_memory() -> bool:
    """Whether the host can write where the device reads."""
    return mx.default_device() == mx.Device(mx.cpu) or mx.metal.is_available()


class EntryArray:
    """`array` [entries, ...], written one by one: where it lies if host and device share memory, else by updates that
    MLX runs in place, as nobody else holds the array."""

    def __init__(self, shape: tuple[int, ...], dtype: mx.Dtype, shared: bool | None = None):
        self.array = mx.zeros(shape, dtype)
        mx.eval(self.array)
        shared = shares_memory() if shared is None else shared
        self._host = np.asarray(self.array).view(np.uint8).reshape(shape[0], -1) if shared else None
        self._staged: dict[int, np.ndarray] = {}

    def entry(self, i: int) -> np.ndarray:
        """The entry's bytes, flat, to be written."""
        if self._host is not None:
            return self._host[i]
        if i not in self._staged:
            self._staged[i] = np.zeros(self.array.nbytes // self.array.shape[0], np.uint8)
        return self._staged[i]

    def put(self, entries: Sequence[int]) -> None:
        """Hands written entries to the device."""
        if self._host is None:
            mx.synchronize()  # what read the array has let go of it, or the update would copy it
            for i in entries:
                row = mx.array(self._staged.pop(i)).view(self.array.dtype)
                self.array[i] = row.reshape(self.array.shape[1:])
            mx.eval(self.array)
