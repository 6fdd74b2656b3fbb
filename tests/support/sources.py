"""A weight source over loose safetensors files, cut tensors included; knows not what a complete checkpoint is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

ITEM = {"F32": "<f4", "I32": "<i4", "BF16": "<u2", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "u1"}


def read_safetensors(path: Path) -> tuple[dict[str, tuple[str, np.ndarray]], dict[str, Any]]:
    """Every tensor as (dtype, read-only bits), and the JSON under the metadata key `about` ({} if absent)."""
    blob = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(bytes(blob[:8]), "little")
    header = json.loads(bytes(blob[8 : 8 + size]))
    about = json.loads(header.pop("__metadata__", {}).get("about", "{}"))
    tensors = {}
    for name, entry in header.items():
        count = math.prod(entry["shape"])
        bits = np.frombuffer(blob, ITEM[entry["dtype"]], count, 8 + size + entry["data_offsets"][0])
        tensors[name] = (entry["dtype"], bits.reshape(entry["shape"]))
    return tensors, about


class MemoryTable:
    """Rows of an array, as a Table of a Checkpoint gives them."""

    def __init__(self, rows: np.ndarray):
        self._rows, self.shape = rows, rows.shape

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [self._rows[r].tobytes() for r in rows]

    def load(self) -> np.ndarray:
        return self._rows

    def check(self) -> None:
        """Memory does not change under a reader."""


class PartialSource:
    """`raw`, `array` and `in` as a Checkpoint has them, over the tensors that the files hold.

    A tensor that was cut to some rows comes back in its published shape: kept rows in place, the others filled with the
    code the cut names (NaN for Engram tables, so that a wrong row is loud). `array` gives uint8, bfloat16 or float32.
    """

    def __init__(self, *paths: Path):
        self._tensors: dict[str, tuple[str, np.ndarray]] = {}
        self._cut: dict[str, dict[str, Any]] = {}
        for path in paths:
            tensors, about = read_safetensors(Path(path))
            self._tensors.update(tensors)
            self._cut.update(about.get("cut", {}))
        for name, cut in self._cut.items():
            dtype, bits = self._tensors[name]
            full = np.full(cut["shape"], cut["fill"], bits.dtype)
            full[self._tensors[cut["rows"]][1]] = bits
            full.setflags(write=False)
            self._tensors[name] = (dtype, full)

    @classmethod
    def folder(cls, path: Path) -> PartialSource:
        """All `*.safetensors` of a folder."""
        return cls(*sorted(Path(path).glob("*.safetensors")))

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    @property
    def names(self) -> list[str]:
        return sorted(self._tensors)

    def dtype(self, name: str) -> str:
        """The safetensors dtype name."""
        return self._tensors[name][0]

    def raw(self, name: str) -> np.ndarray:
        """The bits: uint8 for F8_E4M3, F8_E8M0 and I8, uint16 for BF16, float32 for F32."""
        return self._tensors[name][1]

    def array(self, name: str) -> mx.array:
        dtype, bits = self._tensors[name]
        out = mx.array(np.ascontiguousarray(bits))
        return out.view(mx.bfloat16) if dtype == "BF16" else out

    def alignment(self, name: str) -> int:
        return 16

    def mapped(self, names: Sequence[str]) -> None:
        """Nothing is mapped: every array is a copy."""

    def table(self, name: str) -> MemoryTable:
        return MemoryTable(self.raw(name))

    def kept_rows(self, name: str) -> np.ndarray | None:
        """Rows that a cut tensor really holds; None for a whole one."""
        cut = self._cut.get(name)
        return None if cut is None else self._tensors[cut["rows"]][1]
