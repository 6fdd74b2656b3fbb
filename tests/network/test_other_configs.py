"""What a config may say and the published one does not: n-grams of five, a layer with both Engram and a tap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.network.engram_hash import EngramHash
from tensorfold.network.plan import Plan
from tensorfold.receipt.runner import Runner, Session
from tensorfold.state.caches import Caches
from tensorfold.testing.synthetic import write
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer
from tests.network.bounds import one_rounding
from tests.network.reference import Reference, bf16
from tests.support.compare import to_numpy
from tests.support.sources import PartialSource

BOTH = 8  # the layer with Engram and a tap
IDS = [3 + int(i) for i in np.random.default_rng(1).integers(0, 500, 64)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other")
    write(path, "tiny", gain=0.3, engram_max_ngram_size=5, engram_layer_ids=[1, BOTH])
    return path


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[Runner]:
    made = Runner(folder)
    yield made
    made.close()


@pytest.mark.parametrize("chunk", [1, 3])
def test_n_grams_of_five_give_equal_bits_in_chunks(runner: Runner, chunk: int) -> None:
    assert runner.config.engram_history == 4
    assert runner(IDS, chunk).same(runner(IDS, 64))


def test_a_tap_holds_the_engram_of_its_layer(runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the streams after the Engram of the layer, by the restatement in float64."""
    config, layer = runner.config, runner.network.layers[BOTH]
    assert layer.role.engram is not None and layer.role.tap is not None
    seen: list[mx.array] = []

    def forward(plan: Plan, caches: Caches) -> object:
        new = runner.network(plan, caches)
        seen.append(new.taps)
        return new

    engram = layer.engram
    monkeypatch.setattr(layer, "engram", lambda x, *rows: (seen.append(x), engram(x, *rows))[1])
    Session(runner, [IDS], forward)([len(IDS)], [[]])
    before, taps = map(to_numpy, seen)
    hashed = EngramHash(config, engram_token_map(Tokenizer.from_folder(folder, config), config)).rows(IDS)
    reference = Reference(json.loads((folder / "config.json").read_text())["text_config"], PartialSource.folder(folder))
    after = reference.engram(BOTH, before, hashed[layer.role.engram])
    d, k = config.hidden_size, layer.role.tap
    one_rounding((taps[:, k * d : (k + 1) * d], bf16(after.astype(np.float64).mean(1))))
    with pytest.raises(AssertionError):
        one_rounding((taps[:, k * d : (k + 1) * d], bf16(before.astype(np.float64).mean(1))))
