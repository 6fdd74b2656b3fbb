"""SlotMemory: the one owner of what slots keep in the caches: places, rings, open pairs and pages of compressed rows.

Nobody else takes, shares or frees any of them. Knows positions and places, no tokens' meaning and no rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from tensorfold.state.caches import PAGE_TOKENS, Caches
from tensorfold.state.pages import Pages
from tensorfold.state.snapshot import Snapshot, page_count


class Holder(Protocol):
    """A sequence in the caches: its first `committed` ids are there, in the rings of `place` and in `pages`, which are
    this module's to change. whole_at: the length at which all layers' rows are there; until then those of the cone."""

    place: int
    pages: list[int]

    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def committed(self) -> int: ...
    @property
    def whole_at(self) -> int: ...


class SlotMemory:
    """What slots share, over one set of caches."""

    def __init__(self, caches: Caches):
        self.caches, self.pages = caches, Pages(caches.pages)
        self._places = deque(range(caches.slots))

    @property
    def free(self) -> int:
        """Slots that can be opened."""
        return len(self._places)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in all pools."""
        pools = [*self.caches.rows.values(), *self.caches.keys.values()]
        return sum(a.nbytes for a in pools) // max(1, self.caches.pages)

    def open(self, slot: Holder) -> None:
        """A place with nothing in it. Raises IndexError when all are taken: look at `free` first."""
        slot.place, slot.pages = self._places.popleft(), []

    def close(self, slot: Holder) -> None:
        """Frees the slot's place and its hold on pages."""
        self.pages.drop(slot.pages)
        slot.pages = []
        self._places.append(slot.place)

    def grow(self, slot: Holder, length: int) -> None:
        """Gives the slot the pages that `length` tokens need."""
        while len(slot.pages) < page_count(length):
            slot.pages.append(self._page())

    def take(self, slot: Holder) -> Snapshot:
        """The slot's readable state at its committed length; whoever holds it lets go by `drop`."""
        caches, width = self.caches, self.caches.config.sliding_window
        # a gather copies, where a slice would keep the whole ring alive
        ring, own = mx.arange(slot.place * width, (slot.place + 1) * width), mx.array([slot.place])
        window = [cache[ring] for cache in caches.window]
        pairs = {source: cache[own][0] for source, cache in caches.pairs.items()}
        mx.async_eval(window, pairs)
        held = list(slot.pages[: page_count(slot.committed)])
        self.pages.hold(held)
        return Snapshot(np.asarray(slot.ids[: slot.committed], np.int32), window, pairs, held, slot.whole_at)

    def put(self, slot: Holder, state: Snapshot) -> None:
        """Writes a state into an open slot that holds nothing; its pages are shared, but for a last one with room."""
        caches, width = self.caches, self.caches.config.sliding_window
        own, partial = list(state.pages), state.length % PAGE_TOKENS > 0
        if partial:
            last = self._page()
            caches.copy_page(own[-1], last)
            own[-1] = last
        self.pages.hold(own[:-1] if partial else own)
        slot.pages = own
        for layer, rows in enumerate(state.window):
            caches.put(caches.window, layer, slice(slot.place * width, (slot.place + 1) * width), rows)
        for source, pair in state.pairs.items():
            caches.put(caches.pairs, source, slot.place, pair)
        mx.eval(caches.arrays())

    def share(self, slot: Holder, twin: Holder) -> None:
        """Opens `twin` with the state of `slot`."""
        self.open(twin)
        state = self.take(slot)
        self.put(twin, state)
        self.drop(state)

    def load(self, arrays: Mapping[str, np.ndarray], ids: Sequence[int], whole_at: int) -> Snapshot:
        """The state after `ids` from the arrays that `readable` gave for it, in pages of its own."""
        caches, n, width = self.caches, len(ids), self.caches.config.sliding_window
        ring = np.arange(max(0, n - width), n) % width
        window = [np.zeros((width, cache.shape[1]), np.uint8) for cache in caches.window]
        for layer, rows in enumerate(window if n else ()):
            rows[ring] = arrays["window"][layer]
        closed = np.zeros((2, caches.config.head_dim), np.float32)
        pairs = {source: mx.array(arrays.get(f"pair.{source}", closed)) for source in caches.pairs}
        pages: list[int] = []
        try:
            for _ in range(page_count(n)):
                pages.append(self._page())
            for source, ratio in caches.sources.items():
                if n // ratio:
                    places = mx.array(_places(pages, n // ratio, PAGE_TOKENS // ratio))
                    for name, pool in (("rows", caches.rows), ("keys", caches.keys)):
                        caches.put(pool, source, places, mx.array(arrays[f"{name}.{source}"]))
            mx.eval(caches.arrays())
        except BaseException:
            self.pages.drop(pages)
            raise
        return Snapshot(np.asarray(ids, np.int32), [mx.array(rows) for rows in window], pairs, pages, whole_at)

    def drop(self, state: Snapshot) -> None:
        """Lets a state's pages go."""
        self.pages.drop(state.pages)

    def _page(self) -> int:
        """A free page; the caches grow when there is none."""
        if not self.pages.free:
            more = max(8, self.pages.count)
            self.caches.grow(self.pages.count + more)
            self.pages.add(more)
        return self.pages.take()


def readable(caches: Caches, slot: Holder) -> dict[str, np.ndarray]:
    """Every cache row of `slot` that a later token can read, by position; equal states give equal arrays. Window rows
    that no layer above will read, as their prompt goes on, are zeros."""
    n, width = slot.committed, caches.config.sliding_window
    position = np.arange(max(0, n - width), n)
    ring = slot.place * width + position % width
    out = {"ids": np.asarray(slot.ids, np.int32)}
    out["window"] = (
        np.stack([np.array(cache[mx.array(ring)]) for cache in caches.window]) if n else np.zeros((0,), np.uint8)
    )
    if slot.whole_at > n:
        first = caches.config.cone.readable(slot.whole_at)
        first += first[-1:] * caches.stages  # which read what the last layer has
        for rows, start in zip(out["window"], first):
            rows[position < start] = 0
    for source, ratio in caches.sources.items():
        places = mx.array(_places(slot.pages, n // ratio, PAGE_TOKENS // ratio))
        for name, pool in (("rows", caches.rows), ("keys", caches.keys)):
            out[f"{name}.{source}"] = np.array(pool[source][places])
        if n % ratio:
            out[f"pair.{source}"] = np.array(caches.pairs[source][mx.array([slot.place])])[0]
    return out


def _places(pages: Sequence[int], rows: int, per_page: int) -> np.ndarray:
    """int32 [rows]: where a slot's compressed rows lie in a pool."""
    row = np.arange(rows)
    found = np.asarray(pages, np.int64)[row // per_page] * per_page + row % per_page if rows else row
    return found.astype(np.int32)
