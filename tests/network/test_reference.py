"""The numpy restatement against the published code's traces, by sublayer: what is proven here judges the network.

Both sides sum in float64 and round once, so they differ only where float32 steps of the published code (means,
exponentials, divisions) put a value on the other side of a rounding: bounds below count those flips.
"""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from tests.network.reference import F64, Reference, bf16
from tests.network.reference_drafter import Drafter
from tests.support.compare import agreement
from tests.support.goldens import DATA, EXAMPLE, Trace
from tests.support.sources import PartialSource

NAMES = ("tiny_calm", "heads", "trained")


@cache
def setup(name: str) -> tuple[Trace, Reference]:
    folder = {"tiny_calm": DATA / "tiny_calm", "heads": DATA / "heads", "trained": EXAMPLE}[name]
    config = json.loads((folder / "config.json").read_text())["text_config"]
    return Trace.load(name), Reference(config, PartialSource.folder(folder))


def cases(quantity: str, names: tuple[str, ...] = NAMES) -> list[tuple[str, int]]:
    return [(n, L) for n in names for L in range(10) if f"layers.{L}.{quantity}" in Trace.load(n)]


def one_rounding(got: np.ndarray, want: np.ndarray) -> None:
    """One chain of float32 steps and a rounding or two: rare neighbours, at most two steps apart."""
    a = agreement(got, want)
    assert a.equal >= 0.999 and a.steps <= 2, str(a)


def through_codes(got: np.ndarray, want: np.ndarray) -> None:
    """An inner flip may turn one e4m3 code (1/16 of one input), which moves its row a little: a row in ten at most."""
    a = agreement(got, want)
    assert a.rows_equal >= 0.9 and a.worst_row <= 2**-4, str(a)


def columns(name: str, layer: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Compressed rows and published selection that a layer reads."""
    t, r = setup(name)
    if not r.ratios[layer]:
        return None, None
    source = max(s for s in r.c["kv_source_layer_ids"] if s <= layer)
    chosen = max(s for s in r.c["index_source_layer_ids"] if s <= layer)
    return r.compressed_rows(source, r.latents(source, t.q(source, "attn_in"))), t.q(chosen, "topk_idxs")


def scores(name: str, layer: int, rounded: bool) -> np.ndarray:
    t, r = setup(name)
    source = max(s for s in r.c["kv_source_layer_ids"] if s <= layer)
    keys = r.index_keys(source, r.latents(source, t.q(source, "attn_in")))
    return r.index_scores(layer, t.at(f"layers.{layer}.attn_in", t.rows), t.rows, keys, rounded)


def mask(name: str, layer: int, rounded: bool) -> np.ndarray | None:
    t, r = setup(name)
    source = r.c["candidate_source_layer_id"]
    return r.candidates(source, scores(name, source, rounded), t.rows) if layer > source else None


@pytest.mark.parametrize("name,layer", cases("x_out"))
def test_layer_glue(name: str, layer: int) -> None:
    """x_in, pre_in, attn_out and ffn_out give attn_in, ffn_in, x_out and pre_out."""
    t, r = setup(name)
    p, x, pre = f"layers.{layer}", t.stream_in(layer, r.source.raw("embed.weight")), t.pre_in(layer)
    pre_a, post, comb = r.mixes(p, "attn", x)
    one_rounding(r.norm(p + ".attn_norm", r.collapse(x, pre)), t.at(p + ".attn_in", t.rows))
    x = r.expand(t.q(layer, "attn_out"), x, post, comb)
    pre_f, post, comb = r.mixes(p, "ffn", x)
    one_rounding(r.norm(p + ".ffn_norm", r.collapse(x, pre_a)), t.q(layer, "ffn_in"))
    one_rounding(r.expand(t.q(layer, "ffn_out"), x, post, comb), t.q(layer, "x_out"))
    # X after attention is recomputed, so its flips (2^-9 of a few of its elements) reach pre.
    assert np.abs(pre_f - t.q(layer, "pre_out")).max() <= 2e-4


@pytest.mark.parametrize("name,layer", cases("engram_out"))
def test_engram(name: str, layer: int) -> None:
    t, r = setup(name)
    got = r.engram(layer, t.stream_before(layer), t.q(layer, "engram_hash")[t.rows])
    want = t.q(layer, "engram_out")
    if name == "heads":  # the cut holds stream 0's keys and 32 value rows
        got, want = got[:, 0, :32], want[:, 0, :32]
    one_rounding(got, want)


@pytest.mark.parametrize("name,layer", cases("latent"))
def test_compressor_and_stored_rows(name: str, layer: int) -> None:
    """Latents, and where the trace has caches, compressed rows and index keys, are equal."""
    t, r = setup(name)
    latents = r.latents(layer, t.q(layer, "attn_in"))
    one_rounding(latents[t.rows_of(f"layers.{layer}.latent")], t.q(layer, "latent"))
    kept = {"compress_kv_cache": r.compressed_rows(layer, latents), "indexer.k_cache": r.index_keys(layer, latents)}
    for kind, got in kept.items():
        if (stored := f"cache.layers.{layer}.attn.{kind}") in t:
            assert np.array_equal(got[t.rows_of(stored)], t[stored])


@pytest.mark.parametrize("name,layer", cases("topk_idxs"))
def test_selection_with_published_scores(name: str, layer: int) -> None:
    """With scores rounded as published every selected row is equal."""
    t, r = setup(name)
    assert np.array_equal(r.select(scores(name, layer, True), mask(name, layer, True)), t.q(layer, "topk_idxs"))


@pytest.mark.parametrize("name,layer", cases("topk_idxs"))
def test_selection_with_float32_scores_differs_at_near_ties_only(name: str, layer: int) -> None:
    """A row that one rule takes and the other leaves scores within the bfloat16 roundings of the last one taken.

    Each head's product and the sum are rounded: errors stay below 2^-8 of the sum of absolute terms, bounded here by
    2^-6 of the largest visible score. A reader's candidates come of such scores too: checked where the masks agree.
    """
    t, r = setup(name)
    fine, want = scores(name, layer, False), t.q(layer, "topk_idxs")
    limit, published = mask(name, layer, False), mask(name, layer, True)
    got = r.select(fine, limit)
    for i in range(len(want)):
        if limit is not None and published is not None and not np.array_equal(limit[i], published[i]):
            continue
        a, b = set(got[i]) - {-1}, set(want[i]) - {-1}
        assert len(a) == len(b)
        if a != b:
            edge, top = min(fine[i][sorted(a)]), np.abs(fine[i][np.isfinite(fine[i])]).max()
            assert max(edge - fine[i][j] for j in b - a) <= 2**-6 * top


@pytest.mark.parametrize("name,layer", cases("attn_out"))
def test_attention(name: str, layer: int) -> None:
    """All inputs of the layer and the published selection give attn_out."""
    t, r = setup(name)
    through_codes(r.attention(layer, t.q(layer, "attn_in"), t.rows, *columns(name, layer)), t.q(layer, "attn_out"))


@pytest.mark.parametrize("layer", range(10))
def test_window_rows_are_equal(layer: int) -> None:
    t, r = setup("tiny_calm")
    width, at = r.c["sliding_window"], np.arange(len(t.ids))
    rows = r.window_rows(f"layers.{layer}", t.q(layer, "attn_in"), at, r.ratios[layer])
    ring = t[f"cache.layers.{layer}.attn.window_kv_cache"]
    assert np.array_equal(rows[-width:], ring[at[-width:] % width])


@pytest.mark.parametrize("name,layer", cases("gate_idx"))
def test_experts(name: str, layer: int) -> None:
    """Routing is equal, its weights to float32 rounding; the experts of the published routing give ffn_out."""
    t, r = setup(name)
    p, x = f"layers.{layer}", t.q(layer, "ffn_in")
    ids, weights = r.route(p, x, r.c["num_experts_per_tok"])
    assert np.array_equal(ids, t.q(layer, "gate_idx"))
    assert np.allclose(weights, t.q(layer, "gate_w"), rtol=4e-7, atol=0)  # a few float32 steps
    through_codes(r.moe(p, x, t.q(layer, "gate_idx"), t.q(layer, "gate_w")), t.q(layer, "ffn_out"))


def test_taps_final_norm_and_logits() -> None:
    """Taps are inputs of the target layers; logits are one float64 sum rounded to float32, so equal."""
    t, r = setup("tiny_calm")
    d = r.c["hidden_size"]
    for k, layer in enumerate(r.c["dspark_target_layer_ids"]):
        tap = bf16(t.stream_in(layer).astype(F64).mean(1))
        one_rounding(tap, t.at("main_hidden", t.rows)[:, k * d : (k + 1) * d])
    last = len(r.ratios) - r.c["num_nextn_predict_layers"] - 1
    one_rounding(r.norm("norm", r.collapse(t.q(last, "x_out"), t.q(last, "pre_out"))), t["final_norm_out"])
    assert np.array_equal(r.f32_linear("head", t["final_norm_out"]), t["logits"])


def test_drafter_context_rows_are_equal() -> None:
    t, r = setup("tiny_calm")
    width, at = r.c["sliding_window"], np.arange(len(t.ids))
    for k, rows in enumerate(Drafter(r).ingest(t["main_hidden"], at)):
        assert np.array_equal(rows[-width:], t[f"cache.mtp.{k}.attn.window_kv_cache"][at[-width:] % width])


def test_drafts() -> None:
    """All 24 proposals are equal, most confidences to the bit, the rest to what a turned code in three stages moves."""
    t, r = setup("tiny_calm")
    d = Drafter(r)
    context = d.ingest(t["main_hidden"], np.arange(len(t.ids)))
    exact = 0
    for p in range(48, 72):
        want = t[f"draft.{p}.ids"]
        ids, logits, confidence = d.draft(int(want[0]), p, context)
        assert ids == want.tolist()
        exact += np.array_equal(confidence, t[f"draft.{p}.conf"])
        assert np.abs(confidence - t[f"draft.{p}.conf"]).max() <= 0.02
        if f"draft.{p}.logits" in t:
            assert np.abs(logits - t[f"draft.{p}.logits"]).max() <= 0.05
    assert exact >= 12
