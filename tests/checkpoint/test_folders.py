"""Folders that are not quite a checkpoint: git-lfs pointers, weights under other names, files beside the shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from shardkit import INDEX, clone, replace

from tensorfold.checkpoint import Checkpoint, CheckpointError


def test_git_lfs_pointers_are_told_from_files(small: Path, tmp_path: Path) -> None:
    """Where git-lfs fetched none of the large files, or not all, the message says how to get them."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    folder = clone(small, tmp_path / "pointers")
    for name in ("tokenizer.json", "model-00003-of-00017.safetensors"):
        replace(folder / name, pointer)
    with pytest.raises(CheckpointError, match="2 files are git-lfs pointers.*tokenizer.json.*git lfs pull"):
        Checkpoint.open(folder)


def test_weights_under_another_name_are_named(tmp_path: Path, single: Path) -> None:
    folder = clone(single, tmp_path / "renamed")
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match="weights.safetensors has a name that no checkpoint"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("kind", ["index", "numbered", "single"])
def test_weights_beside_the_checkpoint_are_told_and_not_read(
    kind: str, small: Path, single: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = clone(single if kind == "single" else small, tmp_path / "beside")
    if kind == "numbered":
        (folder / INDEX).unlink()
    (folder / "weights.safetensors").write_bytes(b"no weights")
    with Checkpoint.open(folder):
        pass
    assert [r.getMessage().split(": ")[1:3] for r in caplog.records] == [
        ["weights.safetensors", f"not read, no part of the checkpoint by {INDEX if kind == 'index' else 'its name'}"]
    ]
