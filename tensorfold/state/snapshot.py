"""A slot's readable state at one length, kept apart from the slot: copies of its rings and open pairs, shared pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.state.caches import PAGE_TOKENS, Caches
from tensorfold.state.pages import Pages


@dataclass(frozen=True, eq=False)
class Snapshot:
    """State after `ids`: rings uint8 [W, bytes] by layer and stage, open pairs float32 [2, hd],
    pages held for its rows."""

    ids: np.ndarray
    window: list[mx.array]
    pairs: dict[int, mx.array]
    pages: list[int]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the copies; pages are counted by the pools that own them."""
        return sum(a.nbytes for a in [*self.window, *self.pairs.values()]) + self.ids.nbytes


def page_count(length: int) -> int:
    """Pages that `length` tokens need."""
    return -(-length // PAGE_TOKENS)


def take(caches: Caches, pages: Pages, slot: int, held: Sequence[int], ids: Sequence[int]) -> Snapshot:
    """A snapshot of `slot` after `ids`; its pages get one more holder, who must `drop` them in the end."""
    width = caches.config.sliding_window
    ring = mx.arange(slot * width, (slot + 1) * width)  # a gather copies, where a slice would keep the whole ring alive
    window = [cache[ring] for cache in caches.window]
    own = mx.array([slot])
    pairs = {source: cache[own][0] for source, cache in caches.pairs.items()}
    mx.async_eval(window, pairs)
    keep = list(held[: page_count(len(ids))])
    pages.hold(keep)
    return Snapshot(np.asarray(ids, np.int32), window, pairs, keep)


def put(caches: Caches, pages: Pages, slot: int, snapshot: Snapshot) -> list[int]:
    """Writes a snapshot into `slot` and returns the slot's pages; the last one is a copy unless it is full."""
    caches.release()
    width = caches.config.sliding_window
    for layer, rows in enumerate(snapshot.window):
        caches.window[layer][slot * width : (slot + 1) * width] = rows
    for source, pair in snapshot.pairs.items():
        caches.pairs[source][slot] = pair
    own = list(snapshot.pages)
    if snapshot.length % PAGE_TOKENS:
        last = pages.take()
        caches.copy_page(own[-1], last)
        own[-1] = last
        pages.hold(own[:-1])
    else:
        pages.hold(own)
    mx.eval(caches.arrays())
    return own
