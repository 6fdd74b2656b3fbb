"""Every sublayer, the drafter and a greedy stream on each backend of kernels, against the published code's traces.

Bounds are those of plain operations (tests/network/bounds.py); index scores are the product's, which are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import tensorfold
from tensorfold import Generation
from tensorfold.backend.kernels import KernelBackend
from tensorfold.receipt.suite import make_runner
from tests.network import bounds, drafterkit
from tests.network.sublayers import Sublayers
from tests.support.goldens import DATA, TRACES, Trace

Check = Callable[[Sublayers, int], object]
# what a layer of a trace must hold for a check, by check
NEEDS: list[tuple[Check, str]] = [
    (bounds.check_glue, "x_out"),
    (bounds.check_engram, "engram_out"),
    (bounds.check_latents, "latent"),
    (bounds.check_queries, "attn_out"),
    (bounds.check_window, "attn_out"),
    (bounds.check_attend, "attn_out"),
    (bounds.check_output, "attn_out"),
    (bounds.check_attention, "attn_out"),
    (bounds.check_moe, "ffn_out"),
]


@cache
def sublayers(name: str, backend: str) -> Sublayers:
    return Sublayers(name, lambda config: KernelBackend(config, backend))


@cache
def layers_of(name: str, quantity: str) -> list[int]:
    trace = Trace.load(name)
    return [layer for layer in range(10) if f"layers.{layer}.{quantity}" in trace]


@pytest.mark.parametrize("check,quantity", NEEDS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("name", TRACES)
def test_every_layer_is_within_the_bounds(backend: str, name: str, check: Check, quantity: str) -> None:
    layers = layers_of(name, quantity)
    for layer in layers:
        check(sublayers(name, backend), layer)
    assert layers or name == "heads"


@pytest.mark.parametrize("name", TRACES)
def test_selection_is_the_restatements(backend: str, name: str) -> None:
    for layer in layers_of(name, "topk_idxs"):
        bounds.check_selection(sublayers(name, backend), layer, rounded=False)


@pytest.mark.parametrize("name", ["tiny_calm", "heads"])
def test_compressed_rows_and_index_keys_are_the_published_codes(backend: str, name: str) -> None:
    assert [bounds.check_stored_rows(sublayers(name, backend), layer) for layer in layers_of(name, "latent")]


def test_experts_beyond_the_clamp_taps_and_logits(backend: str) -> None:
    s = sublayers("tiny_calm", backend)
    bounds.check_clamped_experts(s, 2)
    for layer in s.config.dspark_target_layer_ids:
        bounds.check_tap(s, layer)
    bounds.check_logits(s)


def test_the_drafter_is_the_published_one(backend: str) -> None:
    drafts = drafterkit.Drafts(lambda config: KernelBackend(config, backend))
    drafterkit.check_context_rows(drafts)
    drafterkit.check_drafts(drafts)
    drafterkit.check_confidences_and_logits(drafts)
    drafterkit.check_drafts_of_one_graph(drafts)


def test_the_stream_of_random_weights_is_the_published_one(backend: str) -> None:
    """Fed with the published tokens, by the row law the way of a reply; where there is a device, as a reply too."""
    trace = Trace.load("tiny_calm")
    prompt, want = (trace[f"gen.{k}"].tolist() for k in ("prompt", "tokens"))
    fed = prompt + want[:-1]
    logits = make_runner(DATA / "tiny_calm", backend)(fed, 64, range(len(prompt) - 1, len(fed))).logits
    assert logits.argmax(-1).tolist() == want
    if backend == "host":
        return
    with tensorfold.Model.load(DATA / "tiny_calm", backend=backend, draft=False) as model:
        got = model.generate(prompt, max_tokens=len(want))
    assert isinstance(got, Generation) and got.tokens == want
