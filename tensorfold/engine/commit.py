"""The commit of a round: kept rows go to their places, the others to a place that nobody reads; knows no tokens.

One scatter of fixed shape serves any count, known or still on its way, and reads no cache: what it writes to has no
other reader by then, so that it is written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend
from tensorfold.network.forward import Forward
from tensorfold.network.plan import Plan
from tensorfold.state.caches import SPARE_PAGE, Caches, Pool


@dataclass
class Commit:
    """One round's writes; `rewind` takes back rows that turned out not to belong to the reply (a stop string inside
    them), if the round was `rewindable`: the rows it overwrites are copied first."""

    caches: Caches
    plan: Plan
    new: Forward
    rings: list[mx.array]
    backend: Backend
    rewindable: bool

    def __post_init__(self) -> None:
        width, parts = self.caches.config.sliding_window, list(zip(self.plan.segments, self.plan.firsts))
        starts = np.array([[s.place, first, s.start] for s, first in parts], np.int32)
        self._slot_place, self._first, self._start = (mx.array(c) for c in starts.T)
        # what a ring has room for
        last = [np.arange(first + max(0, s.rows - width), first + s.rows) for s, first in parts]
        # how many of those the first rows of a round have
        self._upto = dict(zip([0, *np.cumsum([s.rows for s, _ in parts])], [0, *np.cumsum([len(r) for r in last])]))
        # whose place each takes
        older = [np.where(r - width >= first, r - width, -1) for (_, first), r in zip(parts, last)]
        places = [s.place * width + (s.start + r - first) % width for (s, first), r in zip(parts, last)]
        arrays = (mx.array(np.concatenate(a).astype(np.int32)) for a in (last, older, places))
        self._rows, self._older, self._places = arrays
        self._before = [cache[self._places] for cache in self.caches.window] if self.rewindable else []
        mx.async_eval(self._before)  # done before the writes, which then need no copy of a ring

    def keep(self, kept: mx.array) -> None:
        """Writes the first `kept[s]` rows of every segment, int32 [S], perhaps still on its way."""
        rows, caches = self._kept_rows(kept), self.caches
        keep = rows[self._rows]
        origin = mx.where(keep, self._rows, mx.maximum(self._older, 0))
        places = mx.where(keep | (self._older >= 0), self._places, caches.spare_ring)
        stages = caches.config.num_hidden_layers  # their rings lie behind the layers'
        for first, rings in ((0, self.new.window), (stages, self.rings)):
            for layer, fresh_rows in enumerate(rings, first):
                count = self._upto[fresh_rows.shape[0]]  # of the rows that ran the layer
                self._write(caches.window, layer, places[:count], fresh_rows[origin[:count]])
        for source, ratio in caches.sources.items():
            part, fresh = self.plan.compressed[ratio], self.new.sources[source]
            if part.closing.size:
                places = mx.where(rows[part.closing], part.destination, SPARE_PAGE)
                for pool, packed in ((caches.rows, fresh.rows), (caches.keys, fresh.keys)):
                    self._write(pool, source, places, packed)
        self._open_pairs(kept)

    def rewind(self, before: np.ndarray, after: Sequence[int]) -> None:
        """After `keep` of `before` rows a segment: makes every readable row what `keep` of `after` would have left."""
        kept, fewer = mx.array(before), mx.array(np.array(after, np.int32))
        back = self._kept_rows(kept) & ~self._kept_rows(fewer)
        places = mx.where(back[self._rows], self._places, self.caches.spare_ring)
        for layer, old in enumerate(self._before):
            self._write(self.caches.window, layer, places, old)
        self._open_pairs(fewer)

    def _kept_rows(self, kept: mx.array) -> mx.array:
        owner = self.plan.owner
        return mx.arange(self.plan.rows, dtype=mx.int32) - self._first[owner] < kept[owner]

    def _open_pairs(self, kept: mx.array) -> None:
        for source in self.caches.pairs:
            own, ratio = self.new.sources[source].pairs, self.caches.sources[source]
            if own is None:
                raise ValueError(f"source layer {source} gave no open pairs")
            opens = (kept > 0) & ((self._start + kept) % ratio != 0)
            places = mx.where(opens, self._slot_place, self.caches.slots)
            self._write(self.caches.pairs, source, places, own[self._first + mx.maximum(kept, 1) - 1])

    def _write(self, pool: Pool, key: int, places: mx.array, rows: mx.array) -> None:
        self.caches.write(pool, key, lambda cache: self.backend.commit(cache, places, rows))
