"""Reads through the open file: right bytes, or an error that names shard and tensor; never the end of the process."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from shardkit import replace, shard_of

from tensorfold.checkpoint import Checkpoint, CheckpointError
from tensorfold.checkpoint.files import ShardFile, Stamp
from tensorfold.checkpoint.headers import read_header
from tensorfold.checkpoint.mapping import NO_WRAP
from tensorfold.checkpoint.reader import ARRANGED, MAPPED
from tensorfold.checkpoint.table import PART, SLOW, RowPool, Table

NAME = "layers.1.engram.embed.weight"
OTHER = "layers.4.engram.embed.scale"
DENSE = "layers.3.attn.wq_b.weight"


@pytest.fixture
def own(model: Path) -> Path:
    """A copy whose Engram shards and one layer's are files of their own, to be changed in place."""
    for name in (NAME, OTHER, DENSE):
        path = shard_of(model, name)
        replace(path, path.read_bytes())
    return model


def later(path: Path) -> None:
    """Another time of change, as any write gives it."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 1))


def test_rows_of_several_tables_come_in_order(own: Path) -> None:
    with Checkpoint.open(own) as ck:
        tables = [ck.table(NAME), ck.table(OTHER)]
        rng = np.random.default_rng(1)
        for threads, count in ((1, 5), (4, 700), (16, 3000)):
            rows = [rng.integers(0, t.shape[0], count).tolist() for t in tables]
            pool = RowPool(threads)
            read = pool.read(list(zip(tables, rows)))
            pool.close()
            for name, wanted, got in zip((NAME, OTHER), rows, read):
                assert b"".join(got) == ck.raw(name)[wanted].tobytes()
        assert RowPool().read([(tables[0], [])]) == [[]]
        assert np.array_equal(tables[0].load(), ck.raw(NAME)) and not tables[0].load().flags.writeable


def test_slow_reads_are_under_way_at_once(own: Path) -> None:
    """After one slow part four threads meet in a barrier that fewer would never pass."""
    barrier, parts = threading.Barrier(4), list[int]()

    class Meeting(Table):
        def read(self, rows: Any) -> list[bytes]:
            parts.append(len(rows))
            if len(parts) == 1:
                time.sleep(SLOW * PART * 2)
            else:
                barrier.wait(20)
            return super().read(rows)

    with Checkpoint.open(own) as ck:
        table = ck.table(NAME)
        meeting = Meeting.__new__(Meeting)
        meeting.__dict__.update(table.__dict__)
        pool = RowPool(4)
        rows = (list(range(200)) * 2)[: 9 * PART - 3]
        assert pool.read([(meeting, rows)])[0] == table.read(rows)
        assert sorted(parts) == [PART - 3, *[PART] * 8]
        pool.close()


def test_raw_is_read_only_memory_of_its_own(small: Path) -> None:
    """So that a file that is cut later cannot take it away."""
    ck = Checkpoint.open(small)
    raw = ck.raw("embed.weight")
    assert not raw.flags.writeable and not np.shares_memory(raw, ck.view("embed.weight"))


def test_the_checkpoint_knows_how_each_tensor_was_taken(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied for a reason, or mapped, by whichever call; tables are not taken."""
    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: mx.array)
    with Checkpoint.open(small) as ck:
        experts = [f"layers.3.ffn.experts.{e}.w1.weight" for e in range(2)]
        assert ck.taken() == {} and ck.mapped(experts) is not None
        ck.array(DENSE)
        ck.raw("layers.3.attn.wq_a.weight")
        ck.table(NAME)
        assert ck.taken() == {**dict.fromkeys([*experts, DENSE], MAPPED), "layers.3.attn.wq_a.weight": ARRANGED}
    monkeypatch.undo()
    if not mx.metal.is_available():
        with Checkpoint.open(small) as ck:
            assert ck.mapped(experts) is None and ck.taken() == {}
            ck.array(DENSE)
            assert ck.taken() == {DENSE: NO_WRAP}


def test_only_a_table_of_bytes_has_rows(own: Path) -> None:
    with Checkpoint.open(own) as ck:
        for name in ("layers.3.attn.attn_sink", "layers.3.attn_norm.weight", "embed.weight"):
            with pytest.raises(ValueError, match="not a table of bytes"):
                ck.table(name)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def lengthened(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def written(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\x11\x22")
    later(path)


@pytest.mark.parametrize("fault", [cut, cut_to_nothing, lengthened, written])
def test_a_changed_file_is_an_error_naming_it(own: Path, fault: Callable[[Path], None]) -> None:
    with Checkpoint.open(own) as ck:
        table, path = ck.table(NAME), shard_of(own, NAME)
        ck.check()
        fault(path)
        calls = [
            ck.check, lambda: ck.raw(NAME), lambda: ck.view(NAME), lambda: ck.array(NAME), table.load,
            lambda: RowPool().read([(table, [table.shape[0] - 1])]),
            lambda: RowPool().read([(table, list(range(table.shape[0])) * 3)]),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(CheckpointError, match=path.name):
                call()
        assert len(ck.raw(OTHER))  # other shards are as good as before


def test_a_read_beyond_the_end_names_the_tensor(own: Path) -> None:
    with Checkpoint.open(own) as ck:
        table = ck.table(NAME)
        cut_to_nothing(shard_of(own, NAME))
        with pytest.raises(CheckpointError, match=f"ends at byte .*inside tensor {NAME}.*restore the file"):
            table.read([table.shape[0] - 1])


def test_a_file_that_takes_the_name_of_another_changes_nothing(own: Path) -> None:
    """The open file stays what was verified, whatever its name means meanwhile."""
    with Checkpoint.open(own) as ck:
        table, path = ck.table(NAME), shard_of(own, NAME)
        before, view = ck.raw(NAME).tobytes(), ck.view(NAME)
        other = path.with_name("other")
        other.write_bytes(bytes(path.stat().st_size))
        os.replace(other, path)
        assert b"".join(RowPool().read([(table, list(range(table.shape[0])))])[0]) == before == view.tobytes()
        path.unlink()
        ck.check()
        assert ck.raw(NAME).tobytes() == before


def test_a_file_replaced_between_header_and_opening_is_noticed(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file of the same length, or the same one written to."""
    path = shard_of(own, NAME)
    for change in (lambda p: replace(p, p.read_bytes()), later):

        def read_then_change(p: Path, change: Callable[[Path], None] = change) -> Any:
            header = read_header(p)
            if p == path:
                change(p)
            return header

        with monkeypatch.context() as patch, pytest.raises(CheckpointError, match=f"{path.name}: changed since"):
            patch.setattr("tensorfold.checkpoint.reader.read_header", read_then_change)
            Checkpoint.open(own)


def test_an_unreadable_page_is_an_error_naming_the_tensor(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Checkpoint.open(own) as ck:
        table = ck.table(NAME)
        monkeypatch.setattr(os, "pread", bad)
        monkeypatch.setattr(os, "preadv", bad)
        calls = [lambda: ck.raw(NAME), lambda: ck.array(NAME), table.load, lambda: RowPool().read([(table, [3])])]
        for call in calls:
            with pytest.raises(CheckpointError, match=f"inside tensor {NAME}, cannot be read: Input/output error"):
                call()


@pytest.mark.parametrize("most", [1, 7, 1000, 4096])
def test_reads_that_come_in_pieces_are_put_together(
    own: Path, monkeypatch: pytest.MonkeyPatch, poisoned: None, most: int
) -> None:
    """A read may give less than was asked for without being at the end."""
    with Checkpoint.open(own) as ck:
        names = ["layers.3.attn.wq_a.scale", "layers.3.attn_norm.weight", "layers.3.attn.attn_sink"]
        names += [NAME, OTHER, DENSE] if most > 1 else []
        whole = {name: ck.view(name).tobytes() for name in names}
        tables, rows = {name: ck.table(name) for name in (NAME, OTHER)}, [1, 5, 0, 5]
        pread, preadv, calls = os.pread, os.preadv, list[int]()

        def less(fd: int, out: list[memoryview], at: int) -> int:
            calls.append(at)
            return preadv(fd, [out[0][:most]], at)

        monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, most), at))
        monkeypatch.setattr(os, "preadv", less)
        for name in names:
            assert ck.raw(name).tobytes() == bytes(np.array(ck.array(name).view(mx.uint8))) == whole[name], name
        assert tables[OTHER].load().tobytes() == ck.view(OTHER).tobytes()
        for name, table in tables.items():
            expected = [ck.view(name)[row].tobytes() for row in rows]
            assert table.read(rows) == RowPool().read([(table, rows)])[0] == expected
        assert len(calls) > sum(len(bits) // most for bits in whole.values())


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("fault", ["one byte less", "nothing", "an error that passes"])
def test_one_row_that_does_not_come_at_once_is_read_again(
    own: Path, monkeypatch: pytest.MonkeyPatch, which: int, fault: str
) -> None:
    with Checkpoint.open(own) as ck:
        table, rows, plain, calls = ck.table(NAME), [3, 1, 3, 199], os.pread, list[int]()
        expected = [ck.view(NAME)[row].tobytes() for row in rows]

        def pread(fd: int, count: int, at: int) -> bytes:
            calls.append(at)
            if len(calls) != which + 1:
                return plain(fd, count, at)
            if fault == "an error that passes":
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return plain(fd, count - 1, at) if fault == "one byte less" else b""

        monkeypatch.setattr(os, "pread", pread)
        assert table.read(rows) == expected


def test_files_are_closed_with_the_checkpoint(own: Path) -> None:
    ck = Checkpoint.open(own)
    table = ck.table(NAME)
    fds = [file._fd for file in ck._files.values()]
    ck.close()
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)
    with pytest.raises((CheckpointError, OSError)):
        table.read([0])
    ck.close()


@pytest.mark.parametrize("which", [0, 1])
def test_every_table_of_a_read_is_checked(own: Path, which: int) -> None:
    with Checkpoint.open(own) as ck:
        tables = [ck.table(NAME), ck.table(OTHER)]
        later(shard_of(own, (NAME, OTHER)[which]))
        for wanted in (tables, tables[::-1]):
            with pytest.raises(CheckpointError, match="changed since"):
                RowPool().read([(table, [0]) for table in wanted])


def test_a_twin_of_a_file_in_size_and_time_is_another_file(tmp_path: Path) -> None:
    path, twin = tmp_path / "shard", tmp_path / "twin"
    path.write_bytes(b"a" * 100)
    stamp = Stamp.of(path.stat())
    twin.write_bytes(b"b" * 100)
    os.utime(twin, ns=(stamp.changed, stamp.changed))
    ShardFile(path, stamp).close()
    os.replace(twin, path)
    with pytest.raises(CheckpointError, match="changed since its header was read"):
        ShardFile(path, stamp)


@pytest.mark.parametrize("aliased", [False, True])
def test_mappings_are_closed_with_the_checkpoint(own: Path, monkeypatch: pytest.MonkeyPatch, aliased: bool) -> None:
    """Where nobody holds a view any more."""
    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: np.asarray if aliased else None)
    ck = Checkpoint.open(own)
    maps = [mapping._map for mapping in ck._maps.values()]
    assert all((mapping.rows(1) is not None) == aliased for mapping in ck._maps.values())
    ck.close()
    assert len(maps) > 10 and all(mapped.closed for mapped in maps)
