"""Checkpoint: a folder opened strictly, all headers checked against the config before any weight is read.

Knows no network: it hands out tensors by name and never decodes FP8 or FP4.
"""

from __future__ import annotations

import hashlib
from collections.abc import KeysView
from pathlib import Path
from types import TracebackType
from typing import final

import mlx.core as mx
import numpy as np

from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.headers import Entry, ShardHeader, read_header
from tensorfold.checkpoint.inventory import expected_tensors, is_drafter, is_skipped
from tensorfold.checkpoint.layout import find_shards
from tensorfold.checkpoint.mapping import Mapping, metal_wrap
from tensorfold.checkpoint.verify import check_index, check_tensors, merge
from tensorfold.config import ModelConfig

SAMPLE = 4096


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
        self._maps = {i: Mapping(h.path, h.size, wrap) for i, h in enumerate(headers) if i in used}
        self._identity: str | None = None
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, drafter: bool = True) -> Checkpoint:
        """Open a folder with config.json and shards (with an index, numbered, or one model.safetensors).

        All headers are verified, no weight is read. `drafter=False` leaves mtp.* out, present or not; with True they
        must be complete if the config has drafter stages. Image tensors (vision.*, aligner.*, image_*, bias_vl) are
        skipped. Raises ConfigError or CheckpointError (both ValueError) naming file, tensor, expected and found;
        FileNotFoundError or NotADirectoryError if `path` is not a folder with a config.
        """
        folder = Path(path).expanduser()
        if not folder.exists():
            raise FileNotFoundError(f"{folder}: no such folder")
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a checkpoint folder, found a file")
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
        """A read-only view of the mapping in the tensor's shape, never a copy.

        uint8 for F8_E4M3, F8_E8M0 and packed FP4 (two codes a byte), uint16 for BF16, float32 for F32. May be
        unaligned in memory, which numpy handles. Raises KeyError for an unknown name, ValueError once closed.
        """
        mapping, entry = self._at(name)
        return mapping.raw(entry)

    def array(self, name: str) -> mx.array:
        """The tensor as uint8, bfloat16 or float32, evaluated; no copy on Metal where offset and place allow.

        Raises KeyError for an unknown name, ValueError once closed or where the tensor is too long for MLX.
        """
        mapping, entry = self._at(name)
        return mapping.array(entry)

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
                digest.update(_sample(header))
            self._identity = digest.hexdigest()
        return self._identity

    def close(self) -> None:
        """Let go of the mappings; views and arrays already handed out stay valid."""
        self._closed = True
        for mapping in self._maps.values():
            mapping.close()

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


def _wanted(name: str, drafter: bool) -> bool:
    return not is_skipped(name) and (drafter or not is_drafter(name))


def _sample(header: ShardHeader) -> bytes:
    """The ends of the payload, so that other weights under equal headers are told apart."""
    with header.path.open("rb") as file:
        file.seek(header.data_start)
        first = file.read(SAMPLE)
        file.seek(max(header.data_start, header.size - SAMPLE))
        return first + file.read(SAMPLE)


__all__ = ["Checkpoint", "CheckpointError"]
