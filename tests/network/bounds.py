"""How far the network may be from the published values, sublayer by sublayer, and why; knows no MLX.

Goldens sum in float64, the network in float32: a value next to a rounding boundary may fall on its other side. Such
flips are rare, whereas a missing or misplaced rounding moves most rows: most bounds are on how many rows are equal.
"""

from __future__ import annotations

import json
from functools import cache

import numpy as np

from tensorfold.backend.layout import RowKind
from tests.network.reference import F64, Reference
from tests.network.sublayers import FOLDERS, Pair, Sublayers
from tests.support.compare import agreement, to_numpy


@cache
def reference(name: str) -> Reference:
    """The restatement that test_reference.py proves, over the same cut checkpoint."""
    sub = Sublayers(name)
    return Reference(json.loads((FOLDERS[name] / "config.json").read_text())["text_config"], sub.source)


def one_rounding(pair: Pair) -> None:
    """A float32 chain with one or two roundings: an element in five hundred may be a neighbour, none is two steps off
    (the collapse is rounded before the norm: two flips at most meet in one element)."""
    a = agreement(*pair)
    assert a.equal >= 0.998 and a.steps <= 2, str(a)


def through_codes(pair: Pair, rows_equal: float = 0.9) -> None:
    """An inner flip may turn an e4m3 code (1/16 of one input) and so move its row a little; other rows are equal."""
    a = agreement(*pair)
    assert a.rows_equal >= rows_equal and a.worst_row <= 2**-3, str(a)


def check_glue(s: Sublayers, layer: int) -> None:
    pairs = s.glue(layer)
    for name in ("attn_in", "ffn_in", "x_out"):
        one_rounding(pairs[name])
    # X after attention is recomputed; an element of it that flips (2^-9) moves each of the 24 mixes by about 1e-4.
    got, want = (to_numpy(a) for a in pairs["pre_out"])
    assert np.abs(got - want).max() <= 3e-4


def check_engram(s: Sublayers, layer: int) -> None:
    one_rounding(s.engram(layer))


def check_latents(s: Sublayers, layer: int) -> None:
    one_rounding(s.latents(layer))


def check_stored_rows(s: Sublayers, layer: int) -> int:
    """Codes are discrete: of published latents all compressed rows are equal, and keys where no projection flipped."""
    pairs = s.stored(layer)
    for name, pair in pairs.items():
        a = agreement(*pair)
        assert a.equal == 1 if name == "compress_kv_cache" else a.rows_equal >= 0.98, f"{name}: {a}"
    return len(pairs)


def check_window(s: Sublayers, layer: int) -> None:
    """Stored window rows: equal, but for rows where an element before the quantiser flipped over a code boundary."""
    rows = to_numpy(s.reader.unpack(s.attended[layer].window, RowKind.WINDOW))
    r = reference(s.name)
    want = r.window_rows(f"layers.{layer}", s.trace.q(layer, "attn_in"), np.arange(len(rows)), r.ratios[layer])
    a = agreement(rows, want)
    assert a.rows_equal >= 0.98 and a.equal >= 0.9999, str(a)
    if f"cache.layers.{layer}.attn.window_kv_cache" in s.trace:
        assert agreement(*s.window(layer)).rows_equal >= 0.9


def check_queries(s: Sublayers, layer: int) -> None:
    """Query heads after RoPE: codes of the low-rank row may turn, so rows are counted."""
    r, p, rows = reference(s.name), f"layers.{layer}", s.trace.rows
    _, want = r.query(p, s.trace.at(f"{p}.attn_in", rows), rows, r.ratios[layer])
    through_codes((s.attend(layer)[0], want))


def check_attend(s: Sublayers, layer: int) -> None:
    """Softmax over the very columns that were attended: P flips by 2^-9 of one weight, so one step at most. Turned back
    inside the kernel, a flip reaches both elements of its pair, and their own rounding may add a step."""
    r, p = reference(s.name), f"layers.{layer}"
    q, columns, used, out = s.attend(layer)
    want = r.attend(p, q, columns, used)
    if s.turned_back:
        a = agreement(out, r.rope(want, s.trace.rows, r.ratios[layer], inverse=True))
        assert a.equal >= 0.997 and a.steps <= 2, str(a)
    else:
        a = agreement(out, want)
        assert a.equal >= 0.997 and a.steps <= 1, str(a)


def check_output(s: Sublayers, layer: int) -> None:
    """Inverse RoPE, wo_a and wo_b of the attended heads."""
    r, got, p = reference(s.name), s.attention(layer)[0], f"layers.{layer}"
    heads = s.attend(layer)[3]
    through_codes((got, r.project(p, heads) if s.turned_back else r.output(p, heads, s.trace.rows, r.ratios[layer])))


def check_attention(s: Sublayers, layer: int) -> None:
    """attn_out as published. A turned code of a stored row reaches every query that attends to it: with 512 dims and
    312 rows a few turn, so half of the outputs may move; the narrow checkpoints keep nine rows in ten. Scores that are
    not rounded as published select other rows for some queries: those are left out, one in five at most."""
    got, want = s.attention(layer)
    if s.turned_back:
        alike = s.selected_as_published(layer)
        assert alike.mean() >= 0.8, f"{alike.mean():.3f} of the queries select what the published code does"
        got, want = to_numpy(got)[alike], want[alike]
    through_codes((got, want), 0.5 if s.name == "heads" else 0.9)


def published_scores(s: Sublayers, layer: int, rounded: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Reference scores of an index source at the kept rows, and its candidate mask."""
    r, role, rows = reference(s.name), s.config.roles[layer], s.trace.rows
    assert role.kv_source is not None
    keys = r.index_keys(role.kv_source, r.latents(role.kv_source, s.trace.q(role.kv_source, "attn_in")))

    def scores(of: int) -> np.ndarray:
        return r.index_scores(of, s.trace.at(f"layers.{of}.attn_in", rows), rows, keys, rounded)

    first = s.config.candidate_source_layer_id
    return scores(layer), r.candidates(first, scores(first), rows) if role.candidates == "read" else None


def check_selection(s: Sublayers, layer: int, rounded: bool = True) -> None:
    """The same rows as the restatement selects. Swaps are right only between scores that another order of sums turns:
    one bfloat16 step where scores are rounded, 2^-20 of the largest where they are not; in one query of twenty; and
    never between equal scores, where the lower row wins."""
    scores, mask = published_scores(s, layer, rounded)
    want = reference(s.name).select(scores, mask)
    if rounded:
        assert np.array_equal(want, s.trace.q(layer, "topk_idxs"))
    got = s.selection(layer)[0]
    apart = 0
    for i, (a, b) in enumerate(zip(to_numpy(got), want)):
        if np.array_equal(a, b):
            continue
        apart += 1
        taken, left = set(a.tolist()) - {-1}, set(b.tolist()) - {-1}
        assert len(taken) == len(left)
        top = np.abs(scores[i][np.isfinite(scores[i])]).max()
        swapped = scores[i][sorted(taken ^ left)]
        assert np.ptp(swapped) > 0, f"query {s.trace.rows[i]}: a tie went to the higher row"
        assert np.ptp(swapped.astype(F64)) <= (2**-7 if rounded else 2**-20) * top
    assert apart <= len(want) // 20, f"{apart} of {len(want)} queries select other rows"


def check_moe(s: Sublayers, layer: int) -> None:
    """Ids are discrete: equal, as no two biased scores here are within float32 rounding; weights to a few steps."""
    pairs = s.moe(layer)
    assert np.array_equal(np.array(pairs["ids"][0]), pairs["ids"][1])
    assert np.allclose(np.array(pairs["weights"][0]), pairs["weights"][1], rtol=2e-6, atol=0)
    through_codes(pairs["ffn_out"])


def check_clamped_experts(s: Sublayers, layer: int) -> None:
    """Inputs so large that gates and ups pass swiglu_limit, which no trace does: as the restatement has it."""
    r, p, x = reference(s.name), f"layers.{layer}", s.trace.q(layer, "ffn_in") * np.float32(16)
    ids, weights = r.route(p, x, s.config.num_experts_per_tok)
    want = r.moe(p, x, ids, weights)
    through_codes((s.experts(layer, x), want))


def check_tap(s: Sublayers, layer: int) -> None:
    """A mean of four bfloat16 values is exact in float32 but for far exponents."""
    one_rounding(s.tap(layer))


def check_logits(s: Sublayers) -> None:
    """float32 against float64 sums of D products: 1e-5 of the spread; the norm before them may flip 2^-9 of a term."""
    got, want = s.logits()
    assert np.abs(np.array(got) - want).max() <= 2e-3 * want.std()
