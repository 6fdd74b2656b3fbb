"""A shard that is cut, written to or replaced under a model: an error that names it, or the same tokens as before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold import CheckpointError, Model
from tensorfold.checkpoint.files import ShardFile
from tests.engine.kit import CALM, ROOT, ids, run, sampling

PROMPTS = [ids(20, 120), ids(9, 121), ids(33, 122)]
ENGRAM = {"first": "layers.1.engram", "second": "layers.4.engram"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CALM, tmp_path / "model"))


@pytest.fixture
def disk(folder: Path) -> Iterator[Model]:
    with Model.load(folder, engram="disk", prefix_bytes=0, draft_policy="fixed", max_slots=4) as model:
        yield model


def shard_with(folder: Path, name: str) -> Path:
    """The file whose header names a tensor that begins so."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            if f'"{name}'.encode() in file.read(int.from_bytes(file.read(8), "little")):
                return path
    raise AssertionError(name)


def replies(model: Model, **options: Any) -> list[list[int]]:
    out = model.generate(PROMPTS, max_tokens=12, **options)
    assert isinstance(out, list)
    for failed in [reply.error for reply in out if reply.error is not None]:
        raise failed  # of a list, each reply tells its own
    return [reply.tokens for reply in out]


@pytest.mark.parametrize("mode", [0, 2])
def test_tables_on_disk_in_memory_or_chosen_give_equal_tokens(calm: Model, mode: int, monkeypatch: Any) -> None:
    """Case 71: with drafts and three slots at once, and with a cache of no rows and of few."""
    options = sampling(mode)
    want = replies(calm, **options)
    for engram, cache in (("disk", None), ("disk", 0), ("disk", 8000), ("ram", None), ("auto", None)):
        with monkeypatch.context() as patch:
            if cache is not None:
                patch.setattr("tensorfold.network.engram.EngramTables.__init__.__defaults__", (False, cache))
            with Model.load(CALM, engram=engram, prefix_bytes=0, draft_policy="fixed", max_slots=4) as model:
                assert replies(model, **options) == want, (engram, cache)
                if cache is not None:
                    assert model.memory().engram_bytes <= cache


@pytest.mark.parametrize("which", ENGRAM)
@pytest.mark.parametrize("size", [0, 0.4, -1])
def test_a_cut_table_is_an_error_and_the_model_goes_on(folder: Path, disk: Model, which: str, size: float) -> None:
    """The slots of the round end with the error, naming the shard; restored, the model gives what it gave."""
    want = replies(disk)
    path = shard_with(folder, ENGRAM[which])
    whole, info = path.read_bytes(), path.stat()
    slot = disk.open(PROMPTS[0], max_tokens=12)
    disk.step()
    os.truncate(path, int(len(whole) * size) if size >= 0 else len(whole) - 1)
    with pytest.raises(CheckpointError, match=path.name):
        run(disk, slot)
    assert slot.done and slot.finish_reason == "error" and isinstance(slot.error, CheckpointError)
    assert slot.tokens == want[0][: len(slot.tokens)]
    slot.close()
    with pytest.raises(CheckpointError, match=path.name):
        replies(disk)
    with path.open("r+b") as file:
        file.write(whole)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert replies(disk) == want


def test_a_table_written_to_is_an_error(folder: Path, disk: Model) -> None:
    path = shard_with(folder, ENGRAM["first"])
    with path.open("r+b") as file:
        file.seek(-200, os.SEEK_END)
        file.write(b"\x01" * 100)
    os.utime(path)
    with pytest.raises(CheckpointError, match=f"{path.name}: changed since its header was read"):
        replies(disk)


def test_a_table_of_another_checkpoint_under_the_same_name_changes_no_token(folder: Path, disk: Model) -> None:
    want = replies(disk)
    for name in ENGRAM.values():
        path = shard_with(folder, name)
        other = path.with_name("other")
        other.write_bytes(bytes(path.stat().st_size))
        os.replace(other, path)
    assert replies(disk) == want


def test_an_unreadable_page_of_a_table_is_an_error(disk: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    want = replies(disk)
    other = [ids(20, 300)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", bad)
        with pytest.raises(CheckpointError, match=r"inside tensor layers\.\d\.engram\.embed\.\w+, cannot be read"):
            disk.generate(other[0], max_tokens=3)
    assert replies(disk) == want


@pytest.fixture(scope="module")
def reads_of_a_load() -> int:
    """How many tensors a load reads."""
    plain, reads = ShardFile.read_into, list[Path]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardFile, "read_into", lambda self, *args: reads.append(self.path) or plain(self, *args))
        Model.load(CALM, engram="disk", max_slots=1).close()
    return len(reads)


@pytest.mark.parametrize("at", [0, 3, 40, 400, -1])
@pytest.mark.parametrize("how", ["cut", "written"])
def test_a_shard_that_changes_while_it_is_loaded_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: int, how: str, reads_of_a_load: int
) -> None:
    """At the first read, in the middle of a layer and at the last; the shard that is being read, or the first one."""
    plain, reads, changed = ShardFile.read_into, list[Path](), list[Path]()

    def read(self: ShardFile, *args: Any) -> None:
        if len(reads) == at % reads_of_a_load:
            path = self.path if how == "cut" else (reads + [self.path])[0]
            changed.append(path)
            if how == "cut":
                os.truncate(path, path.stat().st_size // 2)
            else:
                info = path.stat()
                os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 1))
        reads.append(self.path)
        plain(self, *args)

    monkeypatch.setattr(ShardFile, "read_into", read)
    with pytest.raises(CheckpointError) as caught:
        Model.load(folder, engram="disk")
    assert changed and changed[0].name in str(caught.value)


def test_mapped_weights_that_change_end_the_round(calm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where weights are used in place the check follows every round, before its tokens are handed out."""

    def changed() -> None:
        raise CheckpointError("shard: changed since its header was read")

    assert calm._engine.lanes.guard() is None
    slot = calm.open(PROMPTS[0], max_tokens=5)
    monkeypatch.setattr(calm._engine.lanes, "guard", changed)
    with pytest.raises(CheckpointError, match="changed since"):
        run(calm, slot)
    assert slot.tokens == [] and slot.finish_reason == "error"
    slot.close()


def test_a_model_that_maps_weights_watches_its_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx.core as mx

    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: mx.array)
    with Model.load(folder, draft=False, max_slots=1) as model:
        assert model.memory().mapped_bytes > 0
        path = shard_with(folder, "layers.7.")
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(CheckpointError, match=path.name):
            model.generate(PROMPTS[0], max_tokens=3)


FRESH = """
import sys
from tensorfold import Model
from tests.engine.test_faults import CALM, PROMPTS, sampling
with Model.load(CALM, engram="disk", prefix_bytes=0, draft_policy="fixed") as model:
    for mode in (0, 2):
        for reply in model.generate(PROMPTS, max_tokens=12, **sampling(mode)):
            print(reply.stats.token_sha)
"""


def test_a_fresh_process_gives_the_same_tokens_whatever_its_memory_held(calm: Model) -> None:
    """Case 76: the C library fills what it hands out and takes back with a byte that is no zero."""
    import subprocess
    import sys

    env = {**os.environ, "MALLOC_PERTURB_": "165"}
    done = subprocess.run([sys.executable, "-c", FRESH], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = [r.stats.token_sha for mode in (0, 2) for r in calm.generate(PROMPTS, max_tokens=12, **sampling(mode))]
    assert done.stdout.split() == want
