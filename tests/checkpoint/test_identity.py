"""A checkpoint's identity: the same for copies, another wherever one byte, choice or part differs."""

from __future__ import annotations

from pathlib import Path

from shardkit import clone, replace, shard_of

from tensorfold.checkpoint import Checkpoint

WQ = "layers.0.attn.wq_a.weight"


def test_identity_follows_content_and_not_the_folder(small: Path, model: Path) -> None:
    plain = Checkpoint.open(small).identity
    assert len(plain) == 64 and Checkpoint.open(model).identity == plain
    assert Checkpoint.open(model, drafter=False).identity != plain
    path = shard_of(model, WQ)
    data = path.read_bytes()
    replace(path, data[:-1] + bytes([data[-1] ^ 1]))
    assert Checkpoint.open(model).identity != plain


def test_identity_follows_config_and_drafter_under_equal_files(single: Path, tmp_path: Path) -> None:
    """One shard with everything in it: only what was asked for, or how it is computed, differs."""
    plain = Checkpoint.open(single).identity
    assert Checkpoint.open(single, drafter=False).identity != plain
    other = clone(single, tmp_path / "other")
    for name in ("config.json", "inference/config.json"):
        text = (other / name).read_text()
        assert text.count('"rope_theta": 10000') == 1
        replace(other / name, text.replace('"rope_theta": 10000', '"rope_theta": 10001').encode())
    assert Checkpoint.open(other).identity != plain
