"""Every sublayer of the network, teacher-forced with the published code's traces; bounds.py holds the bounds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tensorfold.backend.ops.backend import OpsBackend
from tensorfold.network.engram import EngramTables
from tensorfold.network.forward import Network
from tensorfold.network.plan import Planner, Segment
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer
from tests.network import bounds
from tests.network.sublayers import FOLDERS, Sublayers
from tests.support.compare import to_numpy
from tests.support.goldens import TRACES, Trace


@cache
def sublayers(name: str, product_scores: bool = False) -> Sublayers:
    return Sublayers(name, OpsBackend) if product_scores else Sublayers(name)


def cases(quantity: str) -> list[tuple[str, int]]:
    return [(n, layer) for n in TRACES for layer in range(10) if f"layers.{layer}.{quantity}" in Trace.load(n)]


@pytest.mark.parametrize("name,layer", cases("x_out"))
def test_hyper_connections_and_norms(name: str, layer: int) -> None:
    bounds.check_glue(sublayers(name), layer)


@pytest.mark.parametrize("name,layer", cases("engram_out"))
def test_engram(name: str, layer: int) -> None:
    bounds.check_engram(sublayers(name), layer)


@pytest.mark.parametrize("name,layer", cases("latent"))
def test_compressor(name: str, layer: int) -> None:
    bounds.check_latents(sublayers(name), layer)


@pytest.mark.parametrize("name,layer", [c for c in cases("latent") if c[0] != "trained"])
def test_compressed_rows_and_index_keys(name: str, layer: int) -> None:
    assert bounds.check_stored_rows(sublayers(name), layer) == 2


@pytest.mark.parametrize("name,layer", cases("attn_out"))
def test_attention_stage_by_stage(name: str, layer: int) -> None:
    s = sublayers(name)
    for check in (bounds.check_queries, bounds.check_window, bounds.check_attend, bounds.check_output):
        check(s, layer)


@pytest.mark.parametrize("name,layer", cases("attn_out"))
def test_attention(name: str, layer: int) -> None:
    bounds.check_attention(sublayers(name), layer)


@pytest.mark.parametrize("name,layer", cases("topk_idxs"))
def test_selection_with_published_scores(name: str, layer: int) -> None:
    bounds.check_selection(sublayers(name), layer, rounded=True)


@pytest.mark.parametrize("name,layer", cases("topk_idxs"))
def test_selection_with_the_products_scores(name: str, layer: int) -> None:
    bounds.check_selection(sublayers(name, product_scores=True), layer, rounded=False)


@pytest.mark.parametrize("name,layer", cases("ffn_out"))
def test_experts(name: str, layer: int) -> None:
    bounds.check_moe(sublayers(name), layer)


@pytest.mark.parametrize("name,layer", [("tiny_calm", 2), ("trained", 6)])
def test_experts_beyond_the_clamp(name: str, layer: int) -> None:
    bounds.check_clamped_experts(sublayers(name), layer)


@pytest.mark.parametrize("layer", [7, 8, 9])
def test_taps(layer: int) -> None:
    bounds.check_tap(sublayers("tiny_calm"), layer)


def test_logits() -> None:
    bounds.check_logits(sublayers("tiny_calm"))


def test_whole_forward_takes_inputs_as_taps_and_keeps_every_argmax() -> None:
    """End to end a random network amplifies float32 against float64 sums; still every kept row has the published
    argmax, and every tap is nearer to the published one than its layer's output, by a quarter of that distance."""
    s = sublayers("tiny_calm")
    token_map = engram_token_map(Tokenizer.from_folder(FOLDERS["tiny_calm"], s.config), s.config)
    engram = EngramTables(s.source, s.config, token_map)([], s.trace.ids.tolist())
    segment = Segment(0, 0, s.trace.ids.tolist(), range(s.pages), s.trace.rows.tolist())
    plan = Planner(s.config).build([segment], 1, s.pages, engram)
    got = Network(s.source, s.config, s.backend)(plan, s.caches)
    assert got.logits is not None and got.taps is not None
    assert np.array_equal(np.array(got.logits).argmax(1), s.trace["logits"].argmax(1))
    taps = np.split(to_numpy(got.taps)[s.trace.rows], len(s.config.dspark_target_layer_ids), 1)
    for layer, tap in zip(s.config.dspark_target_layer_ids, taps):
        want, behind = s.tap(layer)[1], to_numpy(s.backend.hc_mean(s.inputs(layer, "x_out")))
        assert np.linalg.norm(tap - want) <= 0.75 * np.linalg.norm(behind - want)
