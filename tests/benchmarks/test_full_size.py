"""The published layout: written as holes or with bytes, opened whole, quickly and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import make_full_size, open_full_size
from tensorfold.checkpoint import Checkpoint, CheckpointError, expected_tensors
from tensorfold.checkpoint.layout import INDEX_FILE
from tensorfold.config import ModelConfig

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "config"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "model"
    make_full_size.write(folder)
    return folder


def test_its_config_is_the_published_one(full: Path) -> None:
    config = ModelConfig.from_flat(json.loads((DATA / "flat.json").read_text()))
    assert config == ModelConfig.from_hf(json.loads((DATA / "hf.json").read_text()))
    assert config == ModelConfig.from_flat(json.loads((full / "inference/config.json").read_text()))
    assert config == ModelConfig.from_hf(json.loads((full / "config.json").read_text()))
    assert config.max_position_embeddings == ModelConfig.from_folder(full).max_position_embeddings


def test_all_48_shards_hold_what_is_published(full: Path) -> None:
    index = json.loads((full / INDEX_FILE).read_text())
    shards = sorted(full.glob("*.safetensors"))
    assert len(shards) == 48 and len(index["weight_map"]) == 96_085
    text = [n for n in index["weight_map"] if not n.startswith(("vision.", "image_"))]
    assert len(text) == 95_819
    places = {
        "embed.weight": 2, "layers.0.attn.wq_a.weight": 3, "layers.39.hc_ffn_fn": 42, "head.weight": 43,
        "mtp.2.norm.weight": 46, "layers.1.engram.embed.weight": 47, "layers.14.engram.wkv.scale": 48,
    }  # fmt: skip
    assert all(index["weight_map"][n] == f"model-{i:05d}-of-00048.safetensors" for n, i in places.items())
    image = 2 * (make_full_size.IMAGE_TENSORS + 3 * 5120)  # stand-ins
    assert index["metadata"]["total_size"] - image == 509_315_486_040 == sum(
        {"BF16": 2_982_346_752, "F32": 169_229_128, "F8_E4M3": 204_015_223_296, "F8_E8M0": 23_563_015_184,
         "I8": 278_585_671_680}.values()
    )  # fmt: skip
    assert sum(512 * p.stat().st_blocks for p in shards) < 2**27


def test_it_opens_whole_and_a_byte_too_few_is_seen(full: Path, tmp_path: Path) -> None:
    with Checkpoint.open(full) as ck:
        assert list(ck.names) == list(expected_tensors(ck.config)) and len(ck) == 95_819 - 43
        assert not ck.raw("layers.39.ffn.experts.383.w2.scale").any()
        assert ck.table("layers.14.engram.embed.weight").read([384_016_681]) == [bytes(256)]
    bad = tmp_path / "bad"
    bad.mkdir()
    for path in full.iterdir():
        (bad / path.name).symlink_to(path)
    shard = bad / "model-00047-of-00048.safetensors"
    target = shard.resolve()
    shard.unlink()
    with target.open("rb") as file:
        head = file.read(2**16)
    with shard.open("wb") as file:
        file.write(head)
        file.truncate(target.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=f"{shard.name}.*expected {target.stat().st_size} bytes"):
        Checkpoint.open(bad)


def test_opening_stays_within_its_bounds(full: Path, tmp_path: Path) -> None:
    words = [sys.executable, "benchmarks/open_full_size.py", "--model", str(full), "--json", str(tmp_path / "r.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opened 95776 tensors" in done.stdout
    receipt = json.loads((tmp_path / "r.json").read_text())
    assert receipt["seconds"] < 10 and receipt["checkpoint"]["label"] == "full model"
    seconds, private = receipt["seconds"], receipt["private_bytes"]
    assert not open_full_size.over(seconds, private, 10, 1000)
    assert open_full_size.over(seconds, private, seconds / 2, 1000)
    assert private is None or open_full_size.over(seconds, private, 10, private / 2e6)


def test_layers_that_are_asked_for_have_bytes(tmp_path: Path) -> None:
    """As far as the gigabytes reach; the others and the Engram tables are holes."""
    make_full_size.write(tmp_path / "model", layers=2, gigabytes=0.09)
    with Checkpoint.open(tmp_path / "model") as ck:
        assert ck.raw("layers.0.attn.wq_a.weight").any() and ck.raw("layers.0.attn.wo_a.scale").min() > 90
        assert not ck.raw("layers.0.attn.wo_b.weight").any()
        assert not ck.raw("layers.0.ffn.experts.300.w1.weight").any()
        assert not ck.raw("layers.1.attn.wq_a.weight").any() and not ck.raw("norm.weight").any()
        assert not np.frombuffer(ck.table("layers.1.engram.embed.weight").read([0])[0], np.uint8).any()
    taken = sum(512 * p.stat().st_blocks for p in (tmp_path / "model").glob("*.safetensors"))
    assert 0.05e9 < taken < 0.2e9


def test_a_cut_has_real_layers_of_every_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only its config is made here: its weights are a gigabyte and more."""
    monkeypatch.setattr("tensorfold.testing.synthetic.write_shard", lambda *_: None)
    config = make_full_size.write_cut(tmp_path, layers=1, experts=6, engram_vocab=1000)
    assert config.num_hidden_layers == make_full_size.FEWEST and config.hidden_size == 5120
    assert {r.ratio for r in config.roles} == {0, 1, 2} and config.engram_layer_ids == (1,)
    assert (tmp_path / "tokenizer.json").exists()
