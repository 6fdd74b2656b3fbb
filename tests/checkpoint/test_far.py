"""Every reader of shards behind 2 and 4 GiB of a file: offsets that 31 or 32 bits do not hold. The files are holes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from shardkit import pack

from tensorfold.checkpoint import Checkpoint, CheckpointError
from tensorfold.checkpoint.files import ShardFile, Stamp
from tensorfold.checkpoint.headers import Entry, read_header
from tensorfold.checkpoint.mapping import RAW, ROW, Mapping
from tensorfold.checkpoint.pieces import Piece, PieceReader
from tensorfold.checkpoint.table import RowPool, Table
from tests.support.sparse import LENGTH, address_space, pattern, sparse

WHOLE = 5 * 2**30 + 3 * ROW  # the whole rows of a file that ends in part of one
SIZE = WHOLE + 2000
# on both sides of 2 and 4 GiB, across them, and at the end of what is mapped
PLACES = [64, 2**31 - 512, 2**31 + 4096, 2**32 - 512, 2**32 + 4096, WHOLE - LENGTH, WHOLE + 4]
ITEM = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "BF16": 2, "F32": 4}


class Rows:
    """Mapped rows as an MLX array takes them on Metal: only what is asked for is looked at."""

    def __init__(self, rows: np.ndarray):
        self._rows = rows

    def __getitem__(self, at: slice) -> mx.array:
        return mx.array(self._rows[at])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("far") / "shard"
    sparse(path, SIZE, PLACES)
    return path


@pytest.fixture
def file(path: Path) -> Iterator[ShardFile]:
    made = ShardFile(path, Stamp.of(path.stat()))
    yield made
    made.close()


@pytest.fixture
def written_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that fetch what was written and leave untouched the memory that holes would fill."""

    def preadv(fd: int, out: list[memoryview], at: int) -> int:
        for place in PLACES:
            first, last = max(at, place), min(at + len(out[0]), place + LENGTH)
            if first < last:
                out[0][first - at : last - at] = os.pread(fd, last - first, first)
        return len(out[0])

    monkeypatch.setattr(os, "preadv", preadv)


def entry(dtype: str, place: int, count: int = LENGTH) -> Entry:
    return Entry(dtype, (4, count // ITEM[dtype] // 4), place, place + count)


def bits(array: mx.array) -> bytes:
    return np.array(array.view(mx.uint8)).tobytes()


def test_reads_of_a_file(file: ShardFile) -> None:
    assert file.read_each(PLACES, LENGTH, "t") == [pattern(place) for place in PLACES]
    for place in PLACES:
        out = memoryview(bytearray(LENGTH))
        file.read_into(out, place, "t")
        assert file.read(place, LENGTH, "t") == bytes(out) == pattern(place)


def test_reads_that_come_in_pieces(file: ShardFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is asked for where the last piece ended, on either side of 2 and 4 GiB."""
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 7), at))
    monkeypatch.setattr(os, "preadv", lambda fd, out, at: preadv(fd, [out[0][:100]], at))
    assert file.read_each(PLACES, LENGTH, "t") == [pattern(place) for place in PLACES]


def test_one_read_of_more_than_4_gib(file: ShardFile, monkeypatch: pytest.MonkeyPatch, written_alone: None) -> None:
    """The system gives less than 2 GiB at a time: the rest is asked for, and lands, behind them."""
    address_space(SIZE)
    out, whole, asked = np.empty(WHOLE, np.uint8), os.preadv, list[int]()

    def preadv(fd: int, to: list[memoryview], at: int) -> int:
        asked.append(at)
        assert asked == [0, 2**31 - 4096, 2**32 - 8192][: len(asked)]  # no read again and again
        return whole(fd, [to[0][: 2**31 - 4096]], at)

    monkeypatch.setattr(os, "preadv", preadv)
    file.read_into(out.data, 0, "t")
    assert all(out[place : place + LENGTH].tobytes() == pattern(place) for place in PLACES[:-1])


def test_an_end_behind_4_gib_is_told_where_it_is(file: ShardFile) -> None:
    with pytest.raises(CheckpointError, match=f"ends at byte {SIZE}, inside t, and had {SIZE} bytes"):
        file.read(SIZE - 10, 11, "t")


@pytest.mark.parametrize("less", [2**31, 2**32])
def test_a_file_shorter_by_a_power_of_two_is_noticed(tmp_path: Path, less: int) -> None:
    path = tmp_path / "shard"
    sparse(path, SIZE, ())
    with pytest.raises(CheckpointError, match=f"{SIZE} bytes when its header was read, {SIZE - less} now"):
        stamp = Stamp.of(path.stat())
        os.truncate(path, SIZE - less)
        os.utime(path, ns=(stamp.changed, stamp.changed))
        ShardFile(path, stamp)
    with pytest.raises(CheckpointError, match=f"{SIZE} bytes when its header was read, {SIZE - less} now"):
        Mapping(path, SIZE)


@pytest.mark.parametrize("more", [2**31, 2**32])
def test_a_header_that_a_power_of_two_is_off(tmp_path: Path, more: int) -> None:
    path = tmp_path / "shard"
    for shape, end in (([16], 16 + more), ([more + 16], 16), ([2**32, 2**32, 16], 16)):
        path.write_bytes(pack({"t": {"dtype": "I8", "shape": shape, "data_offsets": [0, end]}}, bytes(16)))
        with pytest.raises(CheckpointError, match="tensor 't' I8 .* needs"):
            read_header(path)
    path.write_bytes(pack({"t": {"dtype": "I8", "shape": [more + 16], "data_offsets": [0, more + 16]}}, bytes(16)))
    size = path.stat().st_size
    with pytest.raises(CheckpointError, match=f"expected {size + more} bytes by its header, the file has {size}"):
        read_header(path)


@pytest.mark.parametrize("start", [64, 2**31 + 4096, 2**32 + 4096])
def test_rows_of_a_table(file: ShardFile, start: int) -> None:
    """Far rows of a table that begins near, and rows of one that begins far."""
    width = 32
    count = (WHOLE - start) // width
    table = Table(file, "t", Entry("F8_E4M3", (count, width), start, start + count * width))
    found = [place for place in PLACES[:-1] if place >= start]
    rows = [(place - start) // width for place in found]
    assert table.nbytes == count * width
    assert table.read(rows) == [pattern(place)[:width] for place in found]
    pool = RowPool(2)
    assert pool.read([(table, rows * 20)]) == [table.read(rows) * 20]
    pool.close()


@pytest.mark.parametrize("start", [64, 2**32 + 4096])
def test_a_whole_table(file: ShardFile, start: int, written_alone: None) -> None:
    address_space(SIZE)
    width = 64
    count = (WHOLE - start) // width
    out = Table(file, "t", Entry("I8", (count, width), start, start + count * width)).load().reshape(-1)
    assert out.size == count * width
    for place in (p for p in PLACES[:-1] if p >= start):
        assert out[place - start : place - start + LENGTH].tobytes() == pattern(place)


def test_pieces(file: ShardFile) -> None:
    reader = PieceReader(2)
    wanted = [(Piece(file, "t", place, (4, LENGTH // 4)), np.zeros(LENGTH, np.uint8)) for place in PLACES]
    reader.begin(wanted).wait()
    assert [out.tobytes() for _, out in wanted] == [pattern(place) for place in PLACES]
    reader.close()


def test_a_piece_of_more_than_4_gib(file: ShardFile, written_alone: None) -> None:
    address_space(SIZE)
    reader, piece, out = PieceReader(2), Piece(file, "t", 64, (2, (WHOLE - 64) // 2)), np.empty(WHOLE - 64, np.uint8)
    assert piece.nbytes == WHOLE - 64
    reader.begin([(piece, out)]).wait()
    assert all(out[p - 64 : p - 64 + LENGTH].tobytes() == pattern(p) for p in PLACES[:-1])
    reader.close()


@pytest.mark.parametrize("dtype", RAW)
def test_views_and_arrays_of_a_mapping(path: Path, dtype: str) -> None:
    plain, aliased = Mapping(path, SIZE), Mapping(path, SIZE, Rows)  # type: ignore[arg-type]
    for place in PLACES:
        at = entry(dtype, place)
        assert plain.raw(at).tobytes() == pattern(place)
        alias = aliased._alias(at, ITEM[dtype])
        assert (alias is not None) == (place + LENGTH <= WHOLE) == (aliased.why_copied(at) is None)
        for array in (plain.array(at), aliased.array(at), plain.array(at, lambda e: plain.raw(e).copy())):
            assert array.shape == at.shape and bits(array) == pattern(place)


def test_alignment_and_the_end_of_whole_rows(path: Path) -> None:
    mapping = Mapping(path, SIZE, Rows)  # type: ignore[arg-type]
    for base in (2**31, 2**32, 2**32 + 2**29):
        for more in range(1, 40):
            assert mapping.alignment(entry("I8", base + more, 8)) == max(n for n in (1, 2, 4, 8, 16) if more % n == 0)
    assert mapping.rows(WHOLE) is not None and mapping.rows(WHOLE + 1) is None


@pytest.fixture
def checkpoint(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Checkpoint, dict]]:
    """A shard of tensors that lie near, behind 2 and behind 4 GiB by its header, and where they lie."""
    shutil.copy(small / "config.json", tmp_path)
    header, places, end = dict[str, Any](), dict[str, int](), 0

    def put(name: str, dtype: str, shape: list[int]) -> None:
        nonlocal end
        start, end = end, end + ITEM[dtype] * int(np.prod(shape, dtype=np.int64))
        header[name], places[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}, start

    for i, hole in enumerate((4096, 2**31, 2**31 + 4096, 2**29)):
        put(f"hole.{i}", "I8", [hole])
        for dtype in RAW:
            put(f"{dtype}.{i}", dtype, [8, 16])
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(header, b""))
    begin = path.stat().st_size
    places = {name: begin + at for name, at in places.items() if "hole" not in name}
    sparse(path, begin + end, places.values(), 0)
    with path.open("r+b") as file:
        for name, at in places.items():
            file.seek(at)
            file.write(pattern(at, 128 * ITEM[name.split(".")[0]]))
    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: Rows)
    read = read_header(path)
    assert read.size == begin + end and {name: read.entries[name].start for name in places} == places
    config = Checkpoint.open(small).config
    with Checkpoint(tmp_path, config, False, [read], {name: (0, e) for name, e in read.entries.items()}) as ck:
        yield ck, places


def test_a_checkpoint_gives_far_tensors_by_every_call(checkpoint: tuple[Checkpoint, dict[str, int]]) -> None:
    ck, places = checkpoint
    for name, at in places.items():
        expected = pattern(at, ck.nbytes(name))
        assert ck.raw(name).tobytes() == ck.view(name).tobytes() == bits(ck.array(name)) == expected, name
        if RAW[name.split(".")[0]] is not np.uint8:
            continue
        piece, out = ck.piece(name), np.zeros((8, 16), np.uint8)
        reader = PieceReader(1)
        reader.begin([(piece, out.reshape(-1))]).wait()
        reader.close()
        assert out.tobytes() == b"".join(ck.table(name).read(range(8))) == ck.table(name).load().tobytes() == expected
    names = [name for name in places if not name.endswith(".3")]  # those touch the last, partial row of the file
    mapped = ck.mapped(names)
    assert mapped is not None and mapped[1] == [places[name] for name in names]
    for name, at in zip(names, mapped[1]):
        rows = np.array(mapped[0][at // ROW : (at + 512) // ROW + 1]).reshape(-1)
        assert rows[at % ROW :][:128].tobytes() == pattern(places[name], ck.nbytes(name))[:128]


def test_the_identity_follows_both_ends_of_a_far_file(checkpoint: tuple[Checkpoint, dict[str, int]]) -> None:
    ck, _ = checkpoint
    path, known = ck.path / "model.safetensors", {ck.identity}
    for place in (path.stat().st_size - 1, read_header(path).data_start):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\xff")
        known.add(Checkpoint(ck.path, ck.config, False, [read_header(path)], ck._entries).identity)
    assert len(known) == 3
