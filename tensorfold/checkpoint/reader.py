"""Checkpoint: a folder opened strictly, all headers checked against the config before any weight is read.

Knows no network: it hands out tensors by name and never decodes FP8 or FP4.
"""

from __future__ import annotations

import hashlib
from collections.abc import KeysView, Sequence
from pathlib import Path
from types import TracebackType
from typing import final

import mlx.core as mx
import numpy as np

from tensorfold import arguments
from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.files import ShardFile
from tensorfold.checkpoint.headers import Entry, ShardHeader, read_header
from tensorfold.checkpoint.inventory import expected_tensors, is_drafter, is_skipped
from tensorfold.checkpoint.layout import find_shards, refuse_pointers
from tensorfold.checkpoint.mapping import RAW, Mapping, metal_wrap
from tensorfold.checkpoint.pieces import Piece
from tensorfold.checkpoint.table import Table
from tensorfold.checkpoint.verify import check_index, check_tensors, merge
from tensorfold.config import ModelConfig

SAMPLE = 4096
MAPPED = "mapped"
STREAMED = "streamed: read as tokens are routed to it"
ARRANGED = "read into memory, where the backend arranges it"


@final
class Checkpoint:
    """The text tensors of one checkpoint folder by name; use `open`, and `close` or `with`.

    config: its ModelConfig. path: the folder. has_drafter: whether mtp.* tensors are among the names.
    """

    def __init__(
        self, path: Path, config: ModelConfig, has_drafter: bool, headers: list[ShardHeader],
        entries: dict[str, tuple[int, Entry]],
    ) -> None:  # fmt: skip
        """Internal: `open` verifies what is passed here."""
        self.path = path
        self.config = config
        self.has_drafter = has_drafter
        self._entries = entries
        self._headers = headers
        used = {i for i, _ in entries.values()}
        wrap = metal_wrap()
        self._files = {i: ShardFile(headers[i].path, headers[i].stamp) for i in sorted(used)}
        self._maps = {i: Mapping(h.path, h.size, wrap) for i, h in enumerate(headers) if i in used}
        self._identity: str | None = None
        self._taken: dict[str, str] = {}
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, drafter: bool = True) -> Checkpoint:
        """Open a folder with config.json and shards (with an index, numbered, or one model.safetensors).

        All headers are verified, no weight is read. `drafter=False` leaves mtp.* out, present or not; with True they
        must be complete if the config has drafter stages. Image tensors (vision.*, aligner.*, image_*, bias_vl) are
        skipped. Raises ConfigError or CheckpointError (both ValueError) naming file, tensor, expected and found;
        FileNotFoundError or NotADirectoryError if `path` is not a folder with a config.
        """
        folder = arguments.path("path", path)
        if not folder.exists():
            raise FileNotFoundError(f"{folder}: no such folder")
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a checkpoint folder, found a file")
        refuse_pointers(folder)
        config = ModelConfig.from_folder(folder)
        paths, weight_map = find_shards(folder, lambda name: _wanted(name, drafter))
        headers = [read_header(p) for p in paths]
        found = merge(headers)
        if weight_map is not None:
            check_index(folder, weight_map, headers, found)
        expected = expected_tensors(config, drafter)
        check_tensors(folder, expected, headers, found, drafter)
        has_drafter = drafter and config.num_nextn_predict_layers > 0
        return cls(folder, config, has_drafter, headers, {name: found[name] for name in expected})

    @property
    def names(self) -> KeysView[str]:
        """Names of the text tensors, in the published order of shards; image tensors are not among them."""
        return self._entries.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def raw(self, name: str) -> np.ndarray:
        """The tensor read from its file into memory of its own, read-only and aligned.

        uint8 for F8_E4M3, F8_E8M0 and packed FP4 (two codes a byte), uint16 for BF16, float32 for F32. Raises KeyError
        for an unknown name, ValueError once closed, CheckpointError if the file was cut, changed or cannot be read.
        """
        mapping, entry = self._at(name)
        self._taken.setdefault(name, mapping.why_copied(entry) or ARRANGED)
        return self._read(name, entry)

    def view(self, name: str) -> np.ndarray:
        """The same as a view of the mapping, never a copy and perhaps unaligned.

        Whoever reads it when the file has been cut meanwhile ends the process: `raw` and `table` do not.
        """
        mapping, entry = self._at(name)
        self._file(name).check()
        return mapping.raw(entry)

    def table(self, name: str) -> Table:
        """The tensor as rows that are read from its file one by one; ValueError unless it is a table of bytes."""
        _, entry = self._at(name)
        return Table(self._file(name), name, entry)

    def piece(self, name: str) -> Piece:
        """Where the tensor's bytes lie, to be read as they are needed; ValueError unless it is one of bytes."""
        mapping, entry = self._at(name)
        if RAW[entry.dtype] is not np.uint8:
            raise ValueError(f"{name}: {entry.dtype} is not stored as bytes")
        self._taken[name] = STREAMED
        return Piece(self._file(name), name, entry.start, entry.shape)

    def array(self, name: str) -> mx.array:
        """The tensor as uint8, bfloat16 or float32, evaluated; no copy on Metal where offset and place allow.

        Raises KeyError for an unknown name, ValueError once closed or where the tensor is too long for MLX.
        """
        mapping, entry = self._at(name)
        self._file(name).check()
        why = mapping.why_copied(entry)
        array = mapping.array(entry, lambda entry: self._read(name, entry))
        self._taken[name] = MAPPED if why is None else why
        return array

    def alignment(self, name: str) -> int:
        """The largest power of two, 16 at most, that divides the address of `array(name)`."""
        mapping, entry = self._at(name)
        return mapping.alignment(entry)

    def mapped(self, names: Sequence[str]) -> tuple[mx.array, list[int]] | None:
        """A whole shard as uint8 rows without a copy, and each tensor's byte offset in it; None where the tensors lie
        in several shards or the shard cannot be used where it is."""
        found = [self._at(name) for name in names]
        mapping = found[0][0]
        if any(m is not mapping for m, _ in found):
            return None
        self._file(names[0]).check()
        rows = mapping.rows(max(entry.end for _, entry in found))
        self._taken.update({} if rows is None else dict.fromkeys(names, MAPPED))
        return None if rows is None else (rows, [entry.start for _, entry in found])

    def why_copied(self, name: str) -> str | None:
        """Why `array(name)` copies; None where it is used as it lies in the mapping."""
        mapping, entry = self._at(name)
        return mapping.why_copied(entry)

    def taken(self) -> dict[str, str]:
        """How each tensor that was asked for came: "mapped", why it was copied, or STREAMED for a `piece`. Rows of a
        `table` are not among."""
        return dict(self._taken)

    def check(self) -> None:
        """Raises CheckpointError if a shard was cut, written to or replaced in place since its header was verified."""
        for file in self._files.values():
            file.check()

    def nbytes(self, name: str) -> int:
        """Bytes of one tensor in the file."""
        entry = self._entry(name)[1]
        return entry.end - entry.start

    @property
    def identity(self) -> str:
        """SHA-256 hex over the config, and the header, length, first and last payload bytes of every used shard.

        Equal for copies of one checkpoint in any folder; differs with and without the drafter.
        """
        if self._identity is None:
            digest = hashlib.sha256(repr((self.config, self.has_drafter)).encode())
            for i in sorted(self._maps):
                header = self._headers[i]
                digest.update(header.digest + header.size.to_bytes(8, "little"))
                digest.update(_sample(header, self._files[i]))
            self._identity = digest.hexdigest()
        return self._identity

    def close(self) -> None:
        """Let go of the mappings; views and arrays already handed out stay valid."""
        self._closed = True
        for mapping in self._maps.values():
            mapping.close()
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, {len(self)} tensors, drafter={self.has_drafter})"

    def _entry(self, name: str) -> tuple[int, Entry]:
        try:
            return self._entries[name]
        except KeyError:
            raise KeyError(f"{self.path}: no tensor {name!r} among the {len(self)} of this model") from None

    def _at(self, name: str) -> tuple[Mapping, Entry]:
        i, entry = self._entry(name)
        if self._closed:
            raise ValueError(f"{self.path}: the checkpoint is closed")
        return self._maps[i], entry

    def _file(self, name: str) -> ShardFile:
        return self._files[self._entry(name)[0]]

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        out = np.empty(entry.shape, RAW[entry.dtype])
        file = self._file(name)
        if out.size:
            file.read_into(out.reshape(-1).view(np.uint8).data, entry.start, f"tensor {name}")
        file.check()
        out.setflags(write=False)
        return out


def _wanted(name: str, drafter: bool) -> bool:
    return not is_skipped(name) and (drafter or not is_drafter(name))


def _sample(header: ShardHeader, file: ShardFile) -> bytes:
    """The ends of the payload, so that other weights under equal headers are told apart."""
    count = min(SAMPLE, header.size - header.data_start)
    ends = (header.data_start, header.size - count)
    return b"".join(file.read(start, count, "the payload") for start in ends)


__all__ = ["Checkpoint", "CheckpointError"]
