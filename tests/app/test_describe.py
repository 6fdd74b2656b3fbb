"""describe: what a checkpoint holds and needs, from its headers alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import mlx.core as mx
import pytest

import tensorfold
from benchmarks import make_full_size
from tensorfold import CheckpointError, Description, Model
from tensorfold.checkpoint.files import ShardFile
from tensorfold.checkpoint.inventory import tensor_groups
from tensorfold.checkpoint.mapping import NO_WRAP, Mapping
from tests.support.goldens import EXAMPLE

GIB = 2**30


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Description:
    """The published config with every header, and payloads that are holes."""
    folder = tmp_path_factory.mktemp("published")
    make_full_size.write(folder)
    return tensorfold.describe(folder)


def test_the_published_checkpoint(published: Description) -> None:
    about = published
    parts = {kind.name: kind for kind in about.parts}
    assert parts["routed experts"].tensors == 40 * 384 * 6 and parts["Engram tables"].held == "disk"
    assert about.disk_bytes == 264 * (384_006_168 + 384_016_682)
    total = sum(spec.nbytes for group in tensor_groups(about.config).values() for spec in group.values())
    assert about.resident_bytes + about.disk_bytes == total == sum(kind.nbytes for kind in about.formats)
    text = str(about)
    assert (
        "256 GiB  too small" in text
        and "384 GiB  fits" in text
        and "40 layers" in text
        and "drafter of 3 stages" in text
    )
    assert str(about.config.roles) in text


def test_no_weight_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a weight was read")

    for owner, name in ((Mapping, "raw"), (Mapping, "array"), (ShardFile, "read"), (ShardFile, "read_into")):
        monkeypatch.setattr(owner, name, refuse)
    assert "Engram tables" in str(tensorfold.describe(EXAMPLE))


def test_a_token_of_long_context_takes_890_bytes(published: Description) -> None:
    """Ratio 2 at layers 2, 8 and 14, ratio 1 at layer 20: compressed rows of 288 bytes and keys of 68."""
    assert published.page_bytes == 128 * 890 and published.bytes_per_1k_tokens == 890_000
    assert 890 == (3 * 288 + 3 * 68) // 2 + 288 + 68
    assert published.needs(1_048_576) - published.needs(1) == (1_048_576 - 128) * 890


def test_every_part_says_how_it_is_held_and_why(published: Description, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied where MLX wraps no mapping; with a device that does, mapped but for what does not fit."""
    if not mx.metal.is_available():
        assert published.mapped_bytes == 0 and published.copied_bytes == published.resident_bytes
        assert {k.why for k in published.parts if k.held == "copied"} == {NO_WRAP}
    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: mx.array)
    about = tensorfold.describe(published.path)
    assert about.resident_bytes == published.resident_bytes and about.disk_bytes == published.disk_bytes
    assert about.mapped_bytes > 0.99 * about.resident_bytes
    whys = {k.why for k in about.parts if k.held == "copied"}
    assert whys and all("partial page" in why or "does not fit its items" in why for why in whys)
    assert all(k.why in str(about) for k in about.parts)


def test_caches_are_what_a_model_takes(model: Model) -> None:
    about, caches = tensorfold.describe(EXAMPLE), model._engine.memory.caches
    rings = [*caches.window, *caches.pairs.values()]
    assert about.slot_bytes * (caches.slots + 1) == sum(a.nbytes for a in rings)
    pools = [*caches.rows.values(), *caches.keys.values()]
    assert about.page_bytes * caches.pages == sum(a.nbytes for a in pools)


def test_what_fits_agrees_with_what_is_needed(published: Description) -> None:
    about = published
    for slots in (1, 16):
        nbytes = about.needs(100_000, slots)
        assert about.tokens_in(nbytes, slots) >= 100_000 - 128 * slots
        assert about.needs(about.tokens_in(nbytes, slots), slots) <= nbytes
    assert about.tokens_in(about.resident_bytes - 1) == 0
    assert about.tokens_in(10**15) == about.config.max_position_embeddings


def test_a_machine_too_small_for_all_is_told_how_many_experts_it_holds(published: Description) -> None:
    about = published
    assert about.routed_experts == 40 * 384 and about.expert_bytes * about.routed_experts == about.routed_bytes
    lines = {line.split()[0]: line for line in str(about).splitlines() if " GiB  " in line}
    room = int(lines["96"].split("room for ")[1].split()[0])
    assert about.needs(128) - about.routed_bytes + room * about.expert_bytes <= 0.75 * 96 * GIB
    assert 0 < room < about.routed_experts and "streamed" not in lines["384"] + lines["16"]


def test_a_faulty_folder_is_refused_as_by_load(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tensorfold.describe(tmp_path / "nowhere")
    folder = tmp_path / "cut"
    shutil.copytree(EXAMPLE, folder)
    shard = sorted(folder.glob("*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=shard.name):
        tensorfold.describe(folder)
