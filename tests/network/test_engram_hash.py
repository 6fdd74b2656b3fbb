"""Engram rows: the published constants and rows, goldens, history, images, what is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from tensorfold.config import ModelConfig
from tensorfold.network.engram_hash import EngramHash, is_prime
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
FACTS = json.loads((DATA / "engram_facts.json").read_text())
EXAMPLE = ROOT / "examples" / "tiny-v41"


def published(**changed: Any) -> Any:
    """The Engram part of the published config, with ids that are their own compressed ids."""
    known = {
        "vocab_size": 99092, "engram_compressed_vocab_size": 99092, "engram_layer_ids": (1, 14), "engram_n_heads": 8,
        "engram_max_ngram_size": 4, "engram_vocab_size": 16_000_000, "engram_num_embeddings": (384006168, 384016682),
        "engram_pad_token_id": 2, "image_token_id": None, "engram_history": 3,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **changed})


def from_folder(folder: Path) -> EngramHash:
    config = ModelConfig.from_folder(folder)
    return EngramHash(config, engram_token_map(Tokenizer.from_folder(folder, config), config))


def test_the_published_constants_and_sample_rows():
    engram = EngramHash(published(), np.arange(99092))
    assert engram.multipliers.tolist() == FACTS["multipliers"]
    assert engram.primes.tolist() == FACTS["primes"]
    assert engram.offsets.tolist() == FACTS["offsets"]
    assert engram.primes.sum((1, 2)).tolist() == FACTS["row_sums"] == [384006168, 384016682]
    sample = np.array(FACTS["sample_rows_pos_major_then_layer"]).reshape(8, 2, 24)
    rows = engram.rows(FACTS["sample_compressed_ids"])
    assert rows.dtype == np.int64
    np.testing.assert_array_equal(rows, sample.transpose(1, 0, 2))


def test_the_published_constants_are_ready_within_a_tenth_of_a_second():
    token_map, config = np.arange(99092), published()

    def once() -> float:
        start = time.perf_counter()
        EngramHash(config, token_map)
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    "folder, trace, ids_key, prefix",
    [
        (DATA / "tiny_calm", DATA / "tiny_calm_trace.safetensors", "ids", "layers"),
        (EXAMPLE, DATA / "trained" / "trace_code_long.safetensors", "ids", "layers"),
        (EXAMPLE, DATA / "trained" / "golden.safetensors", "5.ids", "5.trace.layers"),
    ],
)
def test_the_rows_of_the_published_code(folder, trace, ids_key, prefix):
    engram = from_folder(folder)
    with safe_open(trace, "np") as golden:
        for layer, got in zip(engram.layer_ids, engram.rows(golden.get_tensor(ids_key)), strict=True):
            expected = golden.get_tensor(f"{prefix}.{layer}.engram_hash")
            np.testing.assert_array_equal(got[: len(expected)], expected)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_chunks_with_three_ids_of_history_equal_the_whole(chunk):
    engram = from_folder(EXAMPLE)
    ids = np.random.default_rng(0).integers(0, 2048, 40)
    ids[[7, 20, 21]] = 2047  # images inside the history
    parts = [engram.rows(ids[i : i + chunk], ids[max(0, i - 3) : i]) for i in range(0, 40, chunk)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), engram.rows(ids))
    np.testing.assert_array_equal(engram.rows(ids[30:], ids[:30]), engram.rows(ids)[:, 30:])
    assert engram.rows([], ids[:3]).shape == (2, 0, 12)


def test_nothing_is_seen_past_an_image():
    """Row by row in plain integers, as docs/model.md#engram says it."""
    engram = EngramHash(published(image_token_id=77), np.arange(99092))
    ids = [5, 77, 6, 7, 8, 9, 77, 77, 3]
    got = engram.rows(ids)
    for layer in range(2):
        for p in range(len(ids)):
            v = []
            for s in range(4):
                seen = ids[max(0, p - s) : p + 1]
                v.append(2 if p - s < 0 or 77 in seen else ids[p - s])
            mixed = v[0] * FACTS["multipliers"][layer][0]
            for s in range(1, 4):
                mixed ^= v[s] * FACTS["multipliers"][layer][s]
                for h in range(8):
                    at = (s - 1) * 8 + h
                    expected = mixed % FACTS["primes"][layer][s - 1][h] + FACTS["offsets"][layer][at]
                    assert got[layer, p, at] == expected


def test_primes_are_exact():
    sieve = [n for n in range(2, 3000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(-3, 3000) if is_prime(n)] == sieve
    assert not any(map(is_prime, (3215031751, 3825123056546413051, 15999999)))  # strong pseudoprimes to few bases


def test_a_contradiction_with_the_config_is_refused():
    identity = np.arange(99092)
    with pytest.raises(ValueError, match=r"engram_num_embeddings is \[384006168, 384016683\].*384016682"):
        EngramHash(published(engram_num_embeddings=(384006168, 384016683)), identity)
    with pytest.raises(ValueError, match="99092 ids"):
        EngramHash(published(), identity[:-1])
    with pytest.raises(ValueError, match="allows 0 to 99091"):
        EngramHash(published(), identity + 1)
    config = ModelConfig.from_folder(EXAMPLE)
    wrong = replace(config, engram_compressed_vocab_size=1606)
    with pytest.raises(ValueError, match="1605"):
        engram_token_map(Tokenizer.from_folder(EXAMPLE, config), wrong)


@pytest.mark.parametrize("ids, history", [([99092], []), ([-1], []), ([1], [99092])])
def test_an_id_outside_the_vocabulary_is_refused(ids, history):
    with pytest.raises(ValueError, match="vocabulary is 0 to 99091"):
        EngramHash(published(), np.arange(99092)).rows(ids, history)
