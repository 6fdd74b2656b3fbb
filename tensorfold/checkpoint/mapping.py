"""Maps a shard into memory and shows its tensors as numpy views or MLX arrays; knows no names and no model."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np

from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.headers import Entry

# A no-copy buffer starts and ends on a page; MLX dimensions are int32, so a long file is rows of this many bytes.
ROW = 16384
LARGEST_DIM = 2**31 - 1
RAW = {"F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "I8": np.uint8, "BF16": np.uint16, "F32": np.float32}
NO_WRAP = "MLX takes no mapped file as an array on this device"
Wrap = Callable[[np.ndarray], mx.array]
Read = Callable[[Entry], np.ndarray]


def metal_wrap() -> Wrap | None:
    """How host memory becomes an MLX array without a copy: on a Metal device alone, None elsewhere."""
    if mx.metal.is_available() and mx.default_device() == mx.Device(mx.gpu):
        return lambda rows: mx.asarray(rows, copy=False)
    return None


class Mapping:
    """One shard, mapped read-only; nothing is read until a view is."""

    def __init__(self, path: Path, size: int, wrap: Wrap | None = None) -> None:
        """`size` is the length the header was verified with; `wrap` aliases [rows, ROW] uint8 as an MLX array."""
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._map) != size:
            raise CheckpointError(f"{path}: {size} bytes when its header was read, {len(self._map)} now")
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._wrap = wrap
        self._rows: mx.array | None = None

    def raw(self, entry: Entry) -> np.ndarray:
        """A read-only view in the tensor's shape: uint8 for one-byte codes, uint16 for BF16, float32 for F32."""
        return self._bytes[entry.start : entry.end].view(RAW[entry.dtype]).reshape(entry.shape)

    def array(self, entry: Entry, read: Read | None = None) -> mx.array:
        """The tensor as uint8, bfloat16 or float32, evaluated: an alias of the mapping where `wrap` allows, or a copy
        of what `read` gives (by default of the mapping).

        Raises ValueError where a dimension of the flat tensor does not fit MLX's int32.
        """
        raw = self.raw(entry)
        if raw.size > LARGEST_DIM or raw.nbytes > LARGEST_DIM:
            raise ValueError(f"a tensor of {raw.nbytes} bytes is more than an MLX array takes: read its rows instead")
        alias = self._alias(entry, raw.itemsize)
        if alias is None:
            alias = mx.array(np.require(read(entry) if read else raw, requirements="A"))
        out = alias.view(mx.bfloat16) if entry.dtype == "BF16" else alias
        mx.eval(out)
        return out

    def why_copied(self, entry: Entry) -> str | None:
        """Why `array` copies the tensor; None where it is an alias."""
        if self._wrap is None:
            return NO_WRAP
        if entry.start % np.dtype(RAW[entry.dtype]).itemsize:
            return "starts at a byte that does not fit its items"
        whole = len(self._bytes) // ROW * ROW
        return None if entry.start < entry.end <= whole else "reaches the last, partial page of its file"

    def rows(self, end: int) -> mx.array | None:
        """The file's whole rows as uint8 [rows, ROW] without a copy; None without `wrap` or if `end` lies beyond."""
        whole = len(self._bytes) // ROW
        if self._wrap is None or end > whole * ROW:
            return None
        if self._rows is None:
            self._rows = self._wrap(self._bytes[: whole * ROW].reshape(whole, ROW))
        return self._rows

    def alignment(self, entry: Entry) -> int:
        """The largest power of two, 16 at most, that divides the address of `array`."""
        return 16 if self.why_copied(entry) else (entry.start | 16) & -(entry.start | 16)

    def _alias(self, entry: Entry, itemsize: int) -> mx.array | None:
        """None where the offset does not fit the item size or the tensor touches the tail beyond the last whole row."""
        if entry.start % itemsize or entry.start == entry.end or (rows := self.rows(entry.end)) is None:
            return None
        first, last = entry.start // ROW, -(-entry.end // ROW)
        flat = rows[first:last].reshape(-1)[entry.start - first * ROW : entry.end - first * ROW]
        dtype = {"BF16": mx.uint16, "F32": mx.float32}.get(entry.dtype, mx.uint8)
        return flat.view(dtype).reshape(entry.shape)

    def close(self) -> None:
        """Forget the mapping; memory is released when the last view of it goes."""
        self._rows = None
        self._bytes = np.empty(0, np.uint8)
        try:
            self._map.close()
        except BufferError:
            pass  # a view is still alive and keeps the mapping
