"""The list of expected tensors is that of the published checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from shardkit import header_of

from tensorfold.checkpoint.inventory import expected_tensors, is_skipped
from tensorfold.config import ModelConfig

DATA = Path(__file__).parents[1] / "data"


def test_the_published_model_has_the_published_census() -> None:
    config = ModelConfig.from_hf(json.loads((DATA / "config/hf.json").read_text()))
    tensors = expected_tensors(config)
    bias_vl = 4 * (40 * 384 + 3 * 128)  # F32 of the image router, known and skipped
    totals: Counter[str] = Counter()
    for spec in tensors.values():
        totals[spec.dtype] += spec.nbytes
    totals["F32"] += bias_vl
    assert len(tensors) + 43 == 95_819
    assert totals == {
        "BF16": 2_982_346_752,
        "F32": 169_229_128,
        "F8_E4M3": 204_015_223_296,
        "F8_E8M0": 23_563_015_184,
        "I8": 278_585_671_680,
    }


def test_an_independent_checkpoint_holds_exactly_these() -> None:
    folder = DATA / "tiny_calm"
    found = {}
    for path in folder.glob("model-*.safetensors"):
        header, _ = header_of(path)
        header.pop("__metadata__", None)
        found.update({k: (v["dtype"], tuple(v["shape"])) for k, v in header.items() if not is_skipped(k)})
    assert found == {k: tuple(v) for k, v in expected_tensors(ModelConfig.from_folder(folder)).items()}


@pytest.mark.parametrize(
    "name",
    [
        "vision.a.b",
        "aligner.w1.weight",
        "image_start",
        "image_newline",
        "layers.3.ffn.gate.bias_vl",
        "mtp.0.ffn.gate.bias_vl",
    ],
)
def test_image_tensors_are_known(name: str) -> None:
    assert is_skipped(name)


@pytest.mark.parametrize(
    "name",
    [
        "vision",
        "visions.a",
        "layers.0.ffn.gate.bias",
        "layers.0.attn.bias_vl",
        "model.image_start",
        "layers.x.ffn.gate.bias_vl",
        "embed.weight",
        "image_start.x\n",
        "",
    ],
)
def test_nothing_else_passes_for_an_image_tensor(name: str) -> None:
    assert not is_skipped(name)


def test_without_drafter_no_mtp() -> None:
    config = ModelConfig.from_folder(DATA / "tiny_calm")
    full, target = expected_tensors(config), expected_tensors(config, drafter=False)
    assert {n for n in full if not n.startswith("mtp.")} == set(target)
