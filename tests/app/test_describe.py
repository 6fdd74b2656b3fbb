"""describe: what a checkpoint holds and needs, from its headers alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import tensorfold
from tensorfold import CapacityError, CheckpointError, Description, Model, ModelConfig
from tensorfold.checkpoint.inventory import tensor_groups
from tensorfold.checkpoint.mapping import Mapping
from tests.support.goldens import DATA, EXAMPLE

GIB = 2**30


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Description:
    """The published config with every header, and payloads that are holes."""
    folder = tmp_path_factory.mktemp("published")
    shutil.copy(DATA / "config" / "hf.json", folder / "config.json")
    groups = tensor_groups(ModelConfig.from_folder(folder))
    for i, tensors in enumerate(groups.values(), 1):
        header, at = {}, 0
        for name, spec in tensors.items():
            header[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": (at, at + spec.nbytes)}
            at += spec.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / f"model-{i:05d}-of-{len(groups):05d}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + at)
    return tensorfold.describe(folder)


def test_the_published_checkpoint(published: Description) -> None:
    about = published
    parts = {kind.name: kind for kind in about.parts}
    assert parts["routed experts"].tensors == 40 * 384 * 6 and parts["Engram tables"].held == "mapped"
    assert about.mapped_bytes == 264 * (384_006_168 + 384_016_682)
    total = sum(spec.nbytes for group in tensor_groups(about.config).values() for spec in group.values())
    assert about.resident_bytes + about.mapped_bytes == total == sum(kind.nbytes for kind in about.formats)
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

    monkeypatch.setattr(Mapping, "raw", refuse)
    monkeypatch.setattr(Mapping, "array", refuse)
    assert "Engram tables" in str(tensorfold.describe(EXAMPLE))


def test_caches_are_what_a_model_takes(model: Model) -> None:
    about, caches = tensorfold.describe(EXAMPLE), model._engine.lanes.caches
    rings = [*caches.window, *caches.pairs.values()]
    assert about.slot_bytes * caches.slots == sum(a.nbytes for a in rings)
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


def test_a_faulty_folder_is_refused_as_by_load(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tensorfold.describe(tmp_path / "nowhere")
    folder = tmp_path / "cut"
    shutil.copytree(EXAMPLE, folder)
    shard = sorted(folder.glob("*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=shard.name):
        tensorfold.describe(folder)


@pytest.mark.parametrize("context,message", [(4096, "max_context=4096 needs .* at most ([0-9]+) fits"), (None, None)])
def test_a_context_beyond_the_memory_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, context: int | None, message: str | None
) -> None:
    about = tensorfold.describe(EXAMPLE)
    monkeypatch.setattr("tensorfold.memory.total_bytes", lambda: about.needs(1000))
    if message is None:
        Model.load(EXAMPLE, max_context=context).close()  # a slot grows as it needs
        return
    with pytest.raises(CapacityError, match=message) as caught, monkeypatch.context() as patch:
        patch.setattr(Mapping, "array", lambda *_: pytest.fail("a weight was read"))
        Model.load(EXAMPLE, max_context=context)
    fits = int(str(caught.value).split("at most ")[1].split()[0])
    assert 1000 <= fits < 1128
    Model.load(EXAMPLE, max_context=fits).close()


def test_weights_beyond_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorfold.memory.total_bytes", lambda: 2**20)
    with pytest.raises(CapacityError, match="draft=False leaves the drafter out"):
        Model.load(EXAMPLE)
