"""The file side of a save: what is left, named, followed and kept, by a plain file and by a slot's own."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold.state import files
from tests.engine.kit import ROOT, ids, run

WRITES = """
import os, signal, sys
from pathlib import Path
from tensorfold.state import files
os.fsync = lambda fd: (print("ready", flush=True), signal.pause())
files.write(Path(sys.argv[1]), b"new" * 1000)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def stuck(tmp_path: Path):
    """A process that has written the whole file and waits for the disk; `tmp_path / "state"` is its place."""
    command = [sys.executable, "-c", WRITES, str(tmp_path / "state")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_what_a_killed_save_left_goes_with_the_next_save_to_that_place(stuck: subprocess.Popen, tmp_path: Path):
    stuck.send_signal(signal.SIGKILL)
    stuck.wait()
    (left,) = names(tmp_path)
    assert left.endswith(".part")
    files.write(tmp_path / "other", b"other")
    assert left in names(tmp_path), "it is not of this place"
    files.write(tmp_path / "state", b"state")
    assert names(tmp_path) == ["other", "state"]


def test_a_save_that_goes_on_elsewhere_is_left_alone(stuck: subprocess.Popen, tmp_path: Path):
    files.write(tmp_path / "state", b"state")
    part, _ = names(tmp_path)
    assert part.endswith(".part") and (tmp_path / part).stat().st_size == 3000


def test_a_part_that_is_swept_before_it_is_locked_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock, swept = files._lock, list[str]()

    def late(descriptor: int, how: int) -> bool:
        if not swept:
            swept.extend(names(tmp_path))
            files._sweep(tmp_path / "state")
        return lock(descriptor, how)

    monkeypatch.setattr(files, "_lock", late)
    files.write(tmp_path / "state", b"state")
    assert len(swept) == 1 and names(tmp_path) == ["state"]


@pytest.mark.parametrize(
    "name, error, words",
    [
        ("missing/state", FileNotFoundError, "no folder"),
        ("folder", IsADirectoryError, "folder"),
        ("plain/state", NotADirectoryError, "directory"),
        ("loop", OSError, "links"),
        ("pipe", OSError, "no plain file"),
        ("n" * 256, OSError, "too long"),
    ],
)
def test_what_cannot_be_written_is_named_as_the_caller_named_it(name, error, words, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    for act in (files.check, lambda path: files.write(path, b"state")):
        with pytest.raises(error, match=words) as caught:
            act(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name) and ".part" not in str(caught.value)
    assert names(tmp_path) == before


def test_a_disk_that_refuses_is_told_with_the_callers_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied", "/somewhere/.part")

    for call in ("open", "replace", "fsync"):
        with monkeypatch.context() as patch, pytest.raises(PermissionError) as caught:
            patch.setattr(os, call, refuse)
            files.write(tmp_path / "state", b"state")
        assert caught.value.filename == str(tmp_path / "state") and names(tmp_path) == []


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_is_as_open_as_umask_lets_it(umask: int, mode: int, tmp_path: Path):
    before = os.umask(umask)
    try:
        files.write(tmp_path / "state", b"state")
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o444])
def test_a_file_stays_as_open_as_it_was(mode: int, tmp_path: Path):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(mode)
    files.write(path, b"new")
    assert path.stat().st_mode & 0o777 == mode and path.read_bytes() == b"new"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(there: bool, tmp_path: Path):
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "state", tmp_path / "far" / "target"
    link.symlink_to(Path("far") / "target")
    if there:
        target.write_bytes(b"old")
    files.write(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and not target.is_symlink()
    assert names(tmp_path) == ["far", "state"] and names(tmp_path / "far") == ["target"]


def test_a_slot_is_saved_and_restored_at_home_under_the_longest_name(calm, tmp_path: Path, monkeypatch):
    """`~` is expanded, and a name may have as many bytes as the file system takes; a bad place is told at once."""
    monkeypatch.setenv("HOME", str(tmp_path))
    longest = "ü" * 126 + "abc"
    assert len(longest.encode()) == os.pathconf(tmp_path, "PC_NAME_MAX") == 255
    with calm.open(ids(9), max_tokens=3) as handle:
        run(calm, handle)
        handle.save(f"~/{longest}")
        assert names(tmp_path) == [longest]
        with calm.restore(f"~/{longest}") as again:
            assert again.tokens == handle.tokens
        monkeypatch.setattr("tensorfold.engine.save.take", None)  # nothing is copied before the place is looked at
        with pytest.raises(IsADirectoryError):
            handle.save("~")
    with pytest.raises(FileNotFoundError, match="missing"):
        calm.restore("~/missing")
