"""Pieces of shards: every byte in its place however they are cut and shared, and errors that wait for the rest."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorfold.checkpoint import pieces
from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.files import ShardFile, Stamp
from tensorfold.checkpoint.pieces import Piece, PieceReader
from tensorfold.checkpoint.reader import STREAMED, Checkpoint
from tests.support.goldens import EXAMPLE

BYTES = np.random.default_rng(3).integers(0, 256, 50_000, np.uint8)
CUTS = [(0, 1), (1, 7000), (7001, 999), (8000, 1000), (9000, 1001), (10_001, 0), (10_001, 39_999)]


@pytest.fixture
def shard(tmp_path: Path) -> ShardFile:
    path = tmp_path / "shard"
    path.write_bytes(BYTES.tobytes())
    return ShardFile(path, Stamp.of(path.stat()))


@pytest.fixture
def reader() -> Iterator[PieceReader]:
    made = PieceReader(4)
    yield made
    made.close()


def wanted(shard: ShardFile) -> list[tuple[Piece, np.ndarray]]:
    return [(Piece(shard, f"t{i}", at, (n,)), np.zeros(n, np.uint8)) for i, (at, n) in enumerate(CUTS)]


@pytest.mark.parametrize("part", [1000, 4096, 2**22])
def test_every_byte_comes_once(
    shard: ShardFile, reader: PieceReader, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(pieces, "PART", part)
    sizes, plain = list[int](), ShardFile.read_into
    monkeypatch.setattr(ShardFile, "read_into", lambda s, out, *a: (sizes.append(len(out)), plain(s, out, *a))[1])
    for _ in range(2):
        some = wanted(shard)
        seconds, stall = reader.begin(some).wait()
        assert 0 <= stall <= seconds
        for piece, out in some:
            assert np.array_equal(out, BYTES[piece.start : piece.start + piece.nbytes]), piece.name
    assert sum(sizes) == 2 * sum(n for _, n in CUTS) and max(sizes) <= part


def test_reads_that_give_less_are_gone_on_with(
    shard: ShardFile, reader: PieceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, some = os.preadv, wanted(shard)
    monkeypatch.setattr(os, "preadv", lambda fd, out, at: plain(fd, [out[0][:701]], at))
    for _, out in some:
        out.fill(0xA5)
    reader.begin(some).wait()
    for piece, out in some:
        assert np.array_equal(out, BYTES[piece.start : piece.start + piece.nbytes]), piece.name


def test_an_error_comes_when_every_read_has_ended(
    shard: ShardFile, reader: PieceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who catches it may use the memory again."""
    monkeypatch.setattr(pieces, "PART", 1000)
    plain, running, lock = ShardFile.read_into, list[int](), threading.Lock()

    def read(self: ShardFile, out: memoryview, start: int, what: str) -> None:
        with lock:
            running.append(1)
        if start == 1:
            raise CheckpointError("cannot be read")
        time.sleep(0.01)  # the one that fails is the first to end
        plain(self, out, start, what)
        with lock:
            running.append(-1)

    monkeypatch.setattr(ShardFile, "read_into", read)
    with pytest.raises(CheckpointError, match="cannot be read"):
        reader.begin(wanted(shard)).wait()
    assert sum(running) == 1


def test_a_file_that_changed_while_it_was_read_is_an_error(shard: ShardFile, reader: PieceReader) -> None:
    reading = reader.begin(wanted(shard))
    os.utime(shard.path, ns=(1, 1))
    with pytest.raises(CheckpointError, match="changed since its header was read"):
        reading.wait()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_file_of_a_reading_is_checked(tmp_path: Path, reader: PieceReader, which: int) -> None:
    files = []
    for i in range(3):
        path = tmp_path / f"shard{i}"
        path.write_bytes(BYTES.tobytes())
        files.append(ShardFile(path, Stamp.of(path.stat())))
    reading = reader.begin([(Piece(file, "t", 1, (9,)), np.zeros(9, np.uint8)) for file in files])
    os.utime(files[which].path, ns=(1, 1))
    with pytest.raises(CheckpointError, match=f"shard{which}: changed since"):
        reading.wait()


def test_memory_of_another_size_is_refused(shard: ShardFile, reader: PieceReader) -> None:
    with pytest.raises(ValueError, match="7000 bytes do not go into 6999"):
        reader.begin([(Piece(shard, "t", 1, (70, 100)), np.zeros(6999, np.uint8))])


def test_a_checkpoint_tells_where_a_tensor_of_bytes_lies() -> None:
    with Checkpoint.open(EXAMPLE) as checkpoint:
        name = "layers.0.ffn.experts.3.w1.weight"
        piece, out = checkpoint.piece(name), checkpoint.raw(name)
        assert piece.shape == out.shape and piece.file.read(piece.start, piece.nbytes, name) == out.tobytes()
        checkpoint.piece("layers.0.ffn.experts.4.w1.weight")
        assert checkpoint.taken()["layers.0.ffn.experts.4.w1.weight"] == STREAMED
        with pytest.raises(ValueError, match="F32 is not stored as bytes"):
            checkpoint.piece("layers.0.ffn.gate.bias")
        with pytest.raises(KeyError):
            checkpoint.piece("layers.0.ffn.experts.3.w4.weight")
