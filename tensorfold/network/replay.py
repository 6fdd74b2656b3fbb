"""The forward as a graph that is built once for each shape of a round and then replayed; knows no layer.

Every value of a round is an input array, so rows of any slots and positions share a graph; what decides a graph is how
many rows, segments, logits and closing groups there are, how many rows run each layer, and the bucket of compressed
rows. So the next round's can be built while the last one runs, and its plan's values filled in when they are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from tensorfold.network.compressor import NewRows
from tensorfold.network.forward import Forward, Network
from tensorfold.network.plan import Compressed, Plan
from tensorfold.state.caches import Caches


class Prepared(NamedTuple):
    """What was built before its plan was known: the plan's arrays, and what comes of them once they are filled."""

    given: list[mx.array]
    made: list[mx.array]
    reach: tuple[int, ...] = ()

    def filled(self, arrays: Sequence[mx.array]) -> list[mx.array] | None:
        """The results for these arrays, whose values are put into those given; None where shapes differ."""
        if [(a.shape, a.dtype) for a in arrays] != [(a.shape, a.dtype) for a in self.given]:
            return None
        for old, new in zip(self.given, arrays):
            if new.size:
                np.asarray(memoryview(old))[...] = np.asarray(memoryview(new))  # type: ignore[arg-type]
        return self.made


class Replay:
    """Calls a network through mx.compile; the bits are those of the plain call."""

    def __init__(self, network: Network, like: Caches):
        """`like`: caches of the slots, pages' sizes and drafter's stages that rounds will have."""
        self.network, self._like = network, like
        self._graph = mx.compile(self._run)

    def __call__(self, plan: Plan, caches: Caches) -> Forward:
        """One forward over the plan's rows."""
        prepared, caches.prepared = caches.prepared, None
        made = None
        if isinstance(prepared, Prepared) and prepared.reach == plan.reach:
            made = prepared.filled(_arrays(plan))
        out = iter(self._built(plan, caches) if made is None else made)
        logits = next(out) if plan.head.size else None
        taps = next(out) if self.network.tapped_rows(plan) else None
        window = [next(out) for rows in plan.reach if rows]
        sources = {}
        for source, ratio in caches.sources.items():
            rows, keys = next(out), next(out)
            sources[source] = NewRows(rows, keys, next(out) if ratio > 1 else None)
        return Forward(logits, taps, window, sources)

    def prepare(self, like: Plan, caches: Caches) -> None:
        """Builds the graph of a round whose plan has the shapes of `like`; values come with the plan. Nothing else may
        use the arrays of `like`."""
        caches.prepared = Prepared(_arrays(like), self._built(like, caches), like.reach)

    def _built(self, plan: Plan, caches: Caches) -> list[mx.array]:
        return list(self._graph(_values(plan), caches.arrays()))

    def _run(self, values: dict[str, Any], caches: list[mx.array]) -> list[mx.array]:
        compressed = {ratio: Compressed(**part) for ratio, part in values["compressed"].items()}
        plan = Plan(**{**values, "segments": (), "compressed": compressed})
        new = self.network(plan, self._like.holding(caches))
        beside = [a for a in (new.logits, new.taps) if a is not None]
        rows = [a for n in new.sources.values() for a in (n.rows, n.keys, n.pairs) if a is not None]
        return [*beside, *new.window, *rows]


def _values(plan: Plan) -> dict[str, Any]:
    """The plan's arrays by name, and how many rows run each layer; its segments are left out, as positions must not
    decide a graph."""
    compressed = {ratio: vars(part) for ratio, part in plan.compressed.items()}
    return {name: value for name, value in vars(plan).items() if name != "segments"} | {"compressed": compressed}


def _arrays(plan: Plan) -> list[mx.array]:
    named = cast("list[tuple[str, Any]]", tree_flatten(_values(plan)))
    return [leaf for _, leaf in named if isinstance(leaf, mx.array)]
