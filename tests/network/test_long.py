"""Long prompts: every layer's attention against the float64 restatement up to 4,096 tokens, and chunk sizes too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold.backend.ops import OpsBackend
from tensorfold.receipt.runner import Computed, Runner
from tensorfold.testing import synthetic
from tests.network.reference import Reference
from tests.network.test_streams import goldens
from tests.support.compare import agreement, to_numpy
from tests.support.goldens import EXAMPLE

LENGTHS = (100, 129, 257, 1025, 2049, 4096)
# far apart, because neighbours share their window's rows
ROWS = np.union1d(np.array(LENGTHS) - 1, np.arange(50, LENGTHS[-1], 90))
# 64 of up to 4,096 rows are selected, from at most 24 blocks of 8 candidates; YaRN stretches from position 1,024 on
SHAPE: dict[str, Any] = {
    "dim": 128, "n_heads": 4, "o_groups": 2, "moe_inter_dim": 32, "n_routed_experts": 4, "n_activated_experts": 2,
    "q_lora_rank": 64, "window_size": 32, "index_topk": 64, "candidate_topk_blocks": 24, "candidate_block_size": 8,
    "original_seq_len": 1024, "rope_factor": 4, "vocab_size": 512,
}  # fmt: skip


class Layer(NamedTuple):
    """All inputs of one layer's attention, and all its outputs."""

    x: np.ndarray
    out: np.ndarray


class Watched:
    """Stands before one layer's attention and keeps what goes in and comes out."""

    def __init__(self, attention: Any):
        self.attention, self.inputs, self.outputs = attention, list[mx.array](), list[mx.array]()

    def __call__(self, x: mx.array, *args: Any) -> tuple[mx.array, mx.array]:
        out, window = self.attention(x, *args)
        self.inputs.append(x)
        self.outputs.append(out)
        return out, window


class Selecting(OpsBackend):
    """Keeps what each index source selected, chunk by chunk."""

    def select(self, scores: mx.array, visible: mx.array, candidates: mx.array | None, topk: int) -> mx.array:
        out = super().select(scores, visible, candidates, topk)
        self.__dict__.setdefault("selections", []).append(out)
        return out


class Long:
    """A run of `count` tokens with everything watched."""

    def __init__(self, folder: Path, count: int, rows: np.ndarray = ROWS, wrong_base: bool = False):
        self.runner = Runner(folder, Selecting, drafter=False)
        self.config, self.rows = self.runner.config, rows
        if wrong_base:
            self.runner.planner.rope.compressed = self.runner.planner.rope.window  # type: ignore[method-assign]
        layers = self.runner.network.layers
        for layer in layers:
            layer.attention = Watched(layer.attention)  # type: ignore[assignment]
        self.run = self.runner(tokens(count), 64, self.rows.tolist())
        watched: list[Any] = [layer.attention for layer in layers]
        self.layers = [Layer(*(to_numpy(mx.concatenate(a)) for a in (w.inputs, w.outputs))) for w in watched]
        selections: list[mx.array] = self.runner.backend.selections  # type: ignore[attr-defined]
        sources = self.config.index_source_layer_ids
        self.selected = {s: self._joined(selections[i :: len(sources)]) for i, s in enumerate(sources)}
        text = json.loads((folder / "config.json").read_text())["text_config"]
        self.reference = Reference(text, self.runner.checkpoint)  # type: ignore[arg-type]

    def _joined(self, chunks: list[mx.array]) -> np.ndarray:
        topk = self.config.index_topk
        parts = [np.pad(np.array(c), ((0, 0), (0, topk - c.shape[1])), constant_values=-1) for c in chunks]
        return np.concatenate(parts)[self.rows]


def tokens(count: int) -> list[int]:
    return np.random.default_rng(3).integers(3, 500, count).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "model"
    synthetic.write(path, "tiny", seed=5, engram=False, gain=0.5, **SHAPE)
    return path


@pytest.fixture(scope="module")
def long(folder: Path) -> Long:
    return Long(folder, LENGTHS[-1])


def check_attention(run: Long, layer: int, rows_equal: float = 0.9) -> None:
    """Outputs at the ends of all lengths from the layer's own inputs. An inner float32 flip may turn a code of a query
    or of a stored row, so one row in ten may move, none by more than an eighth of its RMS."""
    r, role = run.reference, run.config.roles[layer]
    compressed = selected = None
    if role.kv_source is not None and role.index_source is not None:
        compressed = r.compressed_rows(role.kv_source, r.latents(role.kv_source, run.layers[role.kv_source].x))
        selected = run.selected[role.index_source]
    want = r.attention(layer, run.layers[layer].x, run.rows, compressed, selected)
    a = agreement(run.layers[layer].out[run.rows], want)
    assert a.rows_equal >= rows_equal and a.worst_row <= 2**-3, str(a)


def check_selection(run: Long, source: int) -> None:
    """The rows the restatement selects; a swap is right between float32 scores that differ by 2^-20 of the largest."""
    r, role = run.reference, run.config.roles[source]
    assert role.kv_source is not None
    keys = r.index_keys(role.kv_source, r.latents(role.kv_source, run.layers[role.kv_source].x))

    def scores(layer: int) -> np.ndarray:
        return r.index_scores(layer, run.layers[layer].x[run.rows], run.rows, keys, rounded=False)

    first = run.config.candidate_source_layer_id
    mask = r.candidates(first, scores(first), run.rows) if role.candidates == "read" else None
    own = scores(source)
    want = r.select(own, mask)
    apart = 0
    for row, got, expected in zip(own, run.selected[source], want):
        swapped = sorted(set(got.tolist()) ^ set(expected.tolist()))
        apart += bool(swapped)
        assert -1 not in swapped and (not swapped or np.ptp(row[swapped]) <= 2**-20 * row[np.isfinite(row)].max())
    assert apart <= len(want) // 10


@pytest.mark.parametrize("layer", range(10))
def test_attention_up_to_4096_tokens(long: Long, layer: int) -> None:
    check_attention(long, layer)


@pytest.mark.parametrize("source", [2, 4, 6, 8])
def test_selection_up_to_4096_tokens(long: Long, source: int) -> None:
    check_selection(long, source)


def test_selection_and_candidates_bite(long: Long) -> None:
    """At 4,096 tokens of ratio 1, 64 of 4,096 rows are taken and candidates keep 192: what lies between is left out."""
    r = long.reference
    keys = r.index_keys(6, r.latents(6, long.layers[6].x))
    scores = {s: r.index_scores(s, long.layers[s].x[long.rows], long.rows, keys, rounded=False) for s in (6, 8)}
    mask = r.candidates(6, scores[6], long.rows)
    assert (mask.sum(1) < long.rows + 1).sum() >= 24
    assert sum(not np.array_equal(a, b) for a, b in zip(r.select(scores[8]), r.select(scores[8], mask))) >= 12
    assert long.selected[2].min() >= 0 or (long.selected[2] >= 0).sum(1).max() == 64


def test_chunk_sizes_agree_at_every_length(folder: Path, long: Long) -> None:
    """Logits at the ends of all lengths and every readable row after 4,096 tokens, in chunks of 64 and of 333."""
    other: Computed = Runner(folder, drafter=False)(tokens(LENGTHS[-1]), 333, ROWS.tolist())
    assert other.same(long.run)


def test_wrong_rotary_base_of_compressed_layers_fails(folder: Path) -> None:
    """The fault that stays hidden on short prompts: layers with a ratio turned by the window layers' table."""
    run = Long(folder, 257, np.arange(40, 257, 12), wrong_base=True)
    check_attention(run, 1, 0.75)
    for layer in (2, 3, 6):
        with pytest.raises(AssertionError):
            check_attention(run, layer, 0.75)


def test_long_prompt_goes_on_alike_for_twenty_seeds() -> None:
    """Case 62 in small: 520 tokens of text, twenty sampled replies, whatever the chunk."""
    prompt = (goldens()[1].prompt + goldens()[2].prompt[1:])[:520]
    replies = []
    with tensorfold.Model.load(EXAMPLE, draft=False) as model:
        engine = model._engine
        for size in (64, 96):
            engine.lanes.schedule.chunk = size
            engine.prefixes.clear()
            model.remember(prompt[:-1], add_bos=False)
            batch = model.generate([prompt] * 20, max_tokens=2, temperature=1.0, seed=list(range(20)))
            assert isinstance(batch, list)
            replies.append([r.tokens for r in batch])
    first, second = replies
    assert first == second and len({tuple(t) for t in first}) > 5
