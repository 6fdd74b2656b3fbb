"""The Engram token map: the published counts, the rule by example, what it is refused for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorfold.config import ModelConfig
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer
from tests.text.helpers import DATA, EXAMPLE, example_config, example_tokenizer, plain_config, train_sentencepiece


def byte_level(folder: Path, vocab: dict[str, int]) -> Path:
    """A folder with the example's tokenizer.json, its vocabulary replaced."""
    data = json.loads((EXAMPLE / "tokenizer.json").read_text())
    data["added_tokens"], data["model"]["merges"], data["model"]["vocab"] = [], [], vocab
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return folder


def test_the_example_gives_its_configs_count():
    token_map = engram_token_map(example_tokenizer(), example_config())
    assert token_map.dtype == np.int32 and token_map.shape == (2048,)
    assert len(np.unique(token_map)) == token_map.max() + 1 == 1605
    assert token_map[:3].tolist() == [0, 1, 2]
    first = np.unique(token_map, return_index=True)[1]
    assert (np.diff(first) > 0).all()  # numbered by first appearance


def test_the_random_checkpoint_gives_its_published_map():
    config = ModelConfig.from_folder(DATA / "tiny_calm")
    token_map = engram_token_map(Tokenizer.from_folder(DATA / "tiny_calm", config), config)
    assert token_map.tolist() == json.loads((DATA / "tiny_calm_token_map.json").read_text())


def test_case_accents_and_spaces_share_an_id_but_broken_bytes_and_bare_spaces_do_not(tmp_path):
    byte_e9, open_c3 = "\u00c3\u00a9", "\u00c3"  # the bytes of e-acute, and its first alone, in the byte alphabet
    words = [
        "a",
        "A",
        "\u0120a",
        byte_e9,
        "e",
        "E",
        open_c3,
        "\u00a9",
        "\u0120",
        "\u010a",
        "\u010a\u010a",
        "\u0120a\u0120b",
    ]
    byte_level(tmp_path, {w: i for i, w in enumerate(words)})
    config = plain_config(
        14, bos_token_id=0, eos_token_id=1, engram_pad_token_id=2, engram_layer_ids=(1,), engram_compressed_vocab_size=6
    )
    token_map = engram_token_map(Tokenizer.from_folder(tmp_path, config), config)
    assert token_map.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 4, 5, 0, 0]  # two ids beyond the tokenizer: the pad's


def test_a_wrong_count_is_refused():
    wrong = replace(example_config(), engram_compressed_vocab_size=1604)
    with pytest.raises(ValueError, match="gives 1605 compressed ids.*1604"):
        engram_token_map(example_tokenizer(), wrong)


def test_a_gap_or_another_kind_of_tokenizer_is_refused(tmp_path):
    gap = byte_level(tmp_path, {"a": 0, "b": 1, "c": 2, "e": 4})
    config = plain_config(5, bos_token_id=0, eos_token_id=1, engram_pad_token_id=2, engram_compressed_vocab_size=4)
    with pytest.raises(ValueError, match="4 tokens but ids up to 4"):
        engram_token_map(Tokenizer.from_folder(gap, config), config)
    (tmp_path / "spm").mkdir()
    config = plain_config(train_sentencepiece(tmp_path / "spm").get_piece_size())
    with pytest.raises(ValueError, match="tokenizer.json only"):
        engram_token_map(Tokenizer.from_folder(tmp_path / "spm", config), config)
