"""A strict reader of safetensors headers; knows the file format alone, no tensor names and no model.

Every byte of the payload must belong to exactly one tensor, and the file must end where the last tensor ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tensorfold.checkpoint.errors import CheckpointError, show
from tensorfold.checkpoint.files import Stamp

LARGEST_HEADER = 100_000_000
LARGEST_OFFSET = 2**63
MOST_DIMS = 16
ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip
FIELDS = {"dtype", "shape", "data_offsets"}


class Entry(NamedTuple):
    """One tensor of a shard: dtype name, shape, and its bytes [start, end) counted from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class ShardHeader:
    """A verified header: path, file size in bytes, where the payload starts, entries by name, sha256 of the header,
    and the stamp of the file it was read from."""

    path: Path
    size: int
    data_start: int
    entries: dict[str, Entry]
    digest: bytes
    stamp: Stamp


def read_header(path: Path) -> ShardHeader:
    """Read and verify one shard's header, no weights.

    Raises CheckpointError naming the file and, where one is at fault, the tensor; OSError if the file cannot be read.
    """
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise CheckpointError(f"{path}: not a regular file")
    with path.open("rb") as file:
        info = os.fstat(file.fileno())
        size = info.st_size
        prefix = file.read(8)
        if len(prefix) < 8:
            raise CheckpointError(f"{path}: {size} bytes, too short for a safetensors header; incomplete download?")
        length = int.from_bytes(prefix, "little")
        if length > LARGEST_HEADER:
            raise CheckpointError(f"{path}: header of {length} bytes, more than {LARGEST_HEADER}; not safetensors?")
        raw = file.read(length) if length <= size - 8 else b""
    if len(raw) != length:
        raise CheckpointError(f"{path}: the header needs {8 + length} bytes, the file has {size}; incomplete download?")
    digest = hashlib.sha256(prefix + raw).digest()
    return ShardHeader(path, size, 8 + length, _entries(path, raw, size), digest, Stamp.of(info))


def _entries(path: Path, raw: bytes, size: int) -> dict[str, Entry]:
    start = 8 + len(raw)
    entries = {name: _entry(path, name, value, start) for name, value in _parse(path, raw)}
    position, before = start, ""
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != position:
            fault = "overlaps the tensor before it" if begin < position else "leaves bytes that belong to no tensor"
            raise CheckpointError(
                f"{path}: tensor {show(name)} {fault} ({show(before)}): starts at byte {begin}, expected {position}"
            )
        position, before = end, name
    if position != size:
        fault = "incomplete download?" if size < position else "bytes after the last tensor"
        raise CheckpointError(f"{path}: expected {position} bytes by its header, the file has {size}; {fault}")
    return entries


def _parse(path: Path, raw: bytes) -> list[tuple[str, Any]]:
    """The header as (name, list of (key, value)) pairs; pairs keep duplicates visible."""
    try:
        pairs = json.loads(raw.decode("utf-8"), object_pairs_hook=_Pairs, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not JSON ({show(str(error))})") from None
    if not isinstance(pairs, _Pairs) or raw[:1] != b"{":
        raise CheckpointError(f"{path}: the header is not a JSON object")
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise CheckpointError(f"{path}: {show(name)} is given twice in the header")
        seen.add(name)
    for name, value in pairs:
        if name == "__metadata__" and not (isinstance(value, _Pairs) and all(isinstance(v, str) for _, v in value)):
            raise CheckpointError(f"{path}: __metadata__ is {show(value)}, expected an object of strings")
    return [pair for pair in pairs if pair[0] != "__metadata__"]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as read, so that it is not mistaken for an array."""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _entry(path: Path, name: str, value: Any, data_start: int) -> Entry:
    fields = dict(value) if isinstance(value, _Pairs) else {}
    if fields.keys() != FIELDS or len(value) != 3:
        raise CheckpointError(f"{path}: tensor {show(name)} is {show(value)}, expected dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    bits = ITEM_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise CheckpointError(f"{path}: tensor {show(name)} has the unknown dtype {show(dtype)}")
    if not _naturals(shape):
        raise CheckpointError(f"{path}: tensor {show(name)} has shape {show(shape)}, expected sizes from 0 up")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{path}: tensor {show(name)} has data_offsets {show(offsets)}, expected [start, end]")
    for n in shape:
        bits *= n
    start, end = offsets
    if bits != 8 * (end - start):
        raise CheckpointError(
            f"{path}: tensor {show(name)} {dtype} {show(shape)} needs {show(-(-bits // 8))} "
            f"bytes, its data_offsets {show(offsets)} hold {show(end - start)}"
        )
    return Entry(dtype, tuple(shape), data_start + start, data_start + end)


def _naturals(values: Any) -> bool:
    if type(values) is not list:
        return False
    for v in values:
        if type(v) is not int or not 0 <= v < LARGEST_OFFSET:
            return False
    return len(values) <= MOST_DIMS
