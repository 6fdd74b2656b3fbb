"""The DSpark drafter, fed with published taps: context rows, proposals, logits, confidences as published."""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np

from tensorfold.backend.layout import RowKind
from tensorfold.network.dspark import Drafter, Proposals
from tensorfold.network.forward import Network
from tensorfold.network.rope import RopeTables
from tensorfold.state.caches import Caches
from tests.network.sublayers import Sublayers
from tests.support.compare import agreement

POSITIONS = range(48, 72)


@cache
def drafter() -> tuple[Sublayers, Drafter, list[mx.array]]:
    """The drafter of tiny_calm and its packed context rows [N, bytes] by stage."""
    s = Sublayers("tiny_calm")
    d = Drafter(s.source, s.config, s.backend, Network(s.source, s.config, s.backend))
    table = RopeTables(s.config).window(np.arange(len(s.trace.ids)))
    return s, d, d.ingest(s.trace.mx("main_hidden"), table)


def rings(s: Sublayers, context: list[mx.array], last: int) -> Caches:
    """Caches of one slot whose drafter rings hold the last W positions up to `last`."""
    caches, width = Caches(s.config, 1, stages=len(context)), s.config.sliding_window
    at = np.arange(max(0, last - width + 1), last + 1)
    for ring, rows in zip(caches.rings, context):
        ring[mx.array(at % width)] = rows[mx.array(at)]
    return caches


@cache
def proposals(p: int) -> Proposals:
    """Greedy proposals after position p."""
    s, d, context = drafter()
    table = RopeTables(s.config).window(np.arange(p + 1, p + 1 + d.block))[None]
    token = mx.array(s.trace[f"draft.{p}.ids"][:1])
    return d.propose(
        rings(s, context, p),
        mx.array([0]),
        token,
        mx.array([p]),
        table,
        lambda i, z, _: mx.argmax(z, -1).astype(mx.int32),
    )


def test_context_rows_are_the_published_rings() -> None:
    """Codes are discrete; an element next to a code boundary may turn in one row of the sixteen."""
    s, _, context = drafter()
    width, count = s.config.sliding_window, len(s.trace.ids)
    at = np.arange(count - width, count)
    for k, rows in enumerate(context):
        got = s.backend.unpack(rows[mx.array(at)], RowKind.WINDOW)
        assert agreement(got, s.trace[f"cache.mtp.{k}.attn.window_kv_cache"][at % width]).rows_equal >= 0.9


def test_every_draft_is_the_published_one() -> None:
    s = drafter()[0]
    for p in POSITIONS:
        assert np.array(proposals(p).ids)[0].tolist() == s.trace[f"draft.{p}.ids"][1:].tolist(), p


def test_confidences_and_logits() -> None:
    """A turned code in one of three stages moves logits of spread 5 by some hundredths; half of the positions turn
    none, and there float32 against float64 sums is all: 1e-4."""
    s = drafter()[0]
    near = 0
    for p in POSITIONS:
        apart = np.abs(np.array(proposals(p).confidence)[0] - s.trace[f"draft.{p}.conf"]).max()
        assert apart <= 0.05, p
        near += apart <= 1e-4
        if f"draft.{p}.logits" in s.trace:
            assert np.abs(np.array(proposals(p).logits)[0] - s.trace[f"draft.{p}.logits"]).max() <= 0.1, p
    assert near >= len(POSITIONS) // 2
