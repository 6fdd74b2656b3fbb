"""The DSpark drafter on one backend, fed with published taps, and how far it may be from the published values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig
from tensorfold.network.dspark import Drafter, Proposals
from tensorfold.network.forward import Network
from tensorfold.network.rope import RopeTables
from tensorfold.state.caches import Caches
from tests.network.sublayers import Sublayers
from tests.support.compare import agreement
from tests.support.published import PublishedScores

POSITIONS = range(48, 72)


class Drafts:
    """The drafter of tiny_calm."""

    def __init__(self, backend: Callable[[ModelConfig], Any] = PublishedScores):
        self.sub = s = Sublayers("tiny_calm", backend)
        self.drafter = Drafter(s.source, s.config, s.backend, Network(s.source, s.config, s.backend))
        self._known: dict[int, Proposals] = {}

    @cached_property
    def context(self) -> list[mx.array]:
        """Packed context rows [N, bytes] by stage."""
        table = RopeTables(self.sub.config).window(np.arange(len(self.sub.trace.ids)))
        return self.drafter.ingest(self.sub.trace.mx("main_hidden"), table)

    def rings(self, *last: int) -> Caches:
        """Caches of slots whose drafter rings hold the last W positions up to `last`, one a slot."""
        caches = Caches(self.sub.config, len(last), stages=len(self.context))
        width = self.sub.config.sliding_window
        for slot, end in enumerate(last):
            at = np.arange(max(0, end - width + 1), end + 1)
            for ring, rows in zip(caches.rings, self.context):
                ring[mx.array(slot * width + at % width)] = rows[mx.array(at)]
        return caches

    def proposals(self, p: int) -> Proposals:
        """Greedy proposals after position p."""
        if p not in self._known:
            s, block = self.sub, self.drafter.block
            table = RopeTables(s.config).window(np.arange(p + 1, p + 1 + block))[None]
            self._known[p] = self.drafter.propose(
                self.rings(p),
                mx.array([0]),
                mx.array(s.trace[f"draft.{p}.ids"][:1]),
                mx.array([p]),
                table,
                lambda i, z, _: mx.argmax(z, -1).astype(mx.int32),
            )
        return self._known[p]


def check_context_rows(d: Drafts) -> None:
    """Codes are discrete; an element next to a code boundary may turn in one row of the sixteen."""
    s = d.sub
    width, count = s.config.sliding_window, len(s.trace.ids)
    at = np.arange(count - width, count)
    for k, rows in enumerate(d.context):
        got = s.reader.unpack(rows[mx.array(at)], RowKind.WINDOW)
        assert agreement(got, s.trace[f"cache.mtp.{k}.attn.window_kv_cache"][at % width]).rows_equal >= 0.9


def check_drafts(d: Drafts) -> None:
    """Every draft is the published one."""
    for p in POSITIONS:
        assert np.array(d.proposals(p).ids)[0].tolist() == d.sub.trace[f"draft.{p}.ids"][1:].tolist(), p


def check_drafts_of_one_graph(d: Drafts) -> None:
    """The graph from the rings to the last draft draws what steps draw, for three slots and for each alone."""
    s, block, pick = d.sub, d.drafter.block, d.sub.backend.draw
    assert pick is not None
    last, seed = np.array([50, 57, 63], np.int32), mx.array(np.array([[1, 0], [7, 9], [3, 0]], np.uint32))
    tokens = mx.array(np.array([s.trace[f"draft.{p}.ids"][0] for p in last], np.int32))
    tables = mx.stack([RopeTables(s.config).window(np.arange(p + 1, p + 1 + block)) for p in last])
    caches, slots, position = d.rings(*last.tolist()), mx.arange(3, dtype=mx.int32), mx.array(last)

    def drawn(temperature: mx.array, of: slice = slice(None)) -> tuple[list[list[int]], list[list[int]]]:
        where = caches, slots[of], tokens[of], position[of], tables[of]
        warm = temperature[of], seed[of]
        steps = d.drafter.propose(*where, lambda i, z, _: pick(z, *warm, position[of] + (2 + i))[0]).ids
        return d.drafter.propose_warm(*where, *warm).tolist(), steps.tolist()

    warm = mx.array([0.0, 1.5, 3.0])
    together, steps = drawn(warm)
    assert together == steps and [drawn(warm, slice(i, i + 1))[0][0] for i in range(3)] == together
    greedy = drawn(mx.zeros(3))[0]
    assert together[0] == greedy[0] and together[1:] != greedy[1:]


def check_confidences_and_logits(d: Drafts) -> None:
    """A turned code in one of three stages moves logits of spread 5 by some hundredths; half of the positions turn
    none, and there float32 against float64 sums is all: 1e-4."""
    trace, near = d.sub.trace, 0
    for p in POSITIONS:
        apart = np.abs(np.array(d.proposals(p).confidence)[0] - trace[f"draft.{p}.conf"]).max()
        assert apart <= 0.05, p
        near += apart <= 1e-4
        if f"draft.{p}.logits" in trace:
            assert np.abs(np.array(d.proposals(p).logits)[0] - trace[f"draft.{p}.logits"]).max() <= 0.1, p
    assert near >= len(POSITIONS) // 2
