"""Packed caches that all slots share, addressed by position; knows bytes and places,
no tokens and no arithmetic of the model.

A forward only reads; a commit writes the kept rows once a round, one array per layer and kind, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy

import mlx.core as mx

from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig

Pool = list[mx.array] | dict[int, mx.array]
PAGE_TOKENS = 128
SPARE_PAGE = 0  # where rows that are not kept go; its number is also that of its first row


class Caches:
    """Window rings [(slots + 1) * W, bytes], compressed rows and index keys [pages * rows, bytes], open pairs float32
    [slots + 1, 2, hd].

    `window` by layer, then the drafter's rings by stage; `rows`, `keys` and `pairs` by KV source layer. A page holds
    the rows of PAGE_TOKENS tokens in every source. The ring and the pair behind the slots', and page 0, are nobody's:
    rows that a commit does not keep go there. `prepared` is what was built on these arrays for the next round.
    """

    def __init__(self, config: ModelConfig, slots: int, pages: int = 1, stages: int = 0):
        self.config, self.slots, self.stages, self.pages = config, slots, stages, 0
        self.prepared: object = None
        c = config
        ring = ((slots + 1) * c.sliding_window, RowKind.WINDOW.row_bytes(c.head_dim))
        self.window = [mx.zeros(ring, mx.uint8) for _ in range(c.num_hidden_layers + stages)]
        self.sources = {r.layer: r.ratio for r in c.roles if r.owns_kv}
        self.rows = {s: mx.zeros((0, RowKind.COMPRESSED.row_bytes(c.head_dim)), mx.uint8) for s in self.sources}
        self.keys = {s: mx.zeros((0, RowKind.KEY.row_bytes(c.index_head_dim)), mx.uint8) for s in self.sources}
        self.pairs = {s: mx.zeros((slots + 1, 2, c.head_dim)) for s, ratio in self.sources.items() if ratio > 1}
        self.grow(pages)

    def grow(self, pages: int) -> None:
        """Makes room for `pages` pages in all; rows that are there stay where they are."""
        more = pages - self.pages
        if more <= 0:
            return
        self.prepared = None
        for source, ratio in self.sources.items():
            for pool in (self.rows, self.keys):
                old = pool[source]
                pool[source] = mx.concatenate([old, mx.zeros((more * (PAGE_TOKENS // ratio), old.shape[1]), mx.uint8)])
        self.pages = pages
        mx.async_eval(self.rows, self.keys)

    @property
    def spare_ring(self) -> int:
        """First row of the ring that is nobody's."""
        return self.slots * self.config.sliding_window

    @property
    def rings(self) -> list[mx.array]:
        """The drafter's rings, by stage."""
        return self.window[self.config.num_hidden_layers :]

    def page_rows(self, source: int, page: int) -> tuple[int, int]:
        """First row and number of rows of a page in the pools of `source`."""
        rows = PAGE_TOKENS // self.sources[source]
        return page * rows, rows

    def write(self, pool: Pool, key: int, change: Callable[[mx.array], mx.array]) -> None:
        """pool[key] becomes `change` of it, in place. Every write comes through here: what was built on the arrays lets
        go of them first, or it would miss the write and make it a copy."""
        self.prepared = None
        pool[key] = change(pool[key])

    def put(self, pool: Pool, key: int, rows: int | slice | mx.array, values: mx.array) -> None:
        """Writes these rows of pool[key]."""

        def change(array: mx.array) -> mx.array:
            array[rows] = values
            return array

        self.write(pool, key, change)

    def copy_page(self, old: int, new: int) -> None:
        """Copies a page's rows and keys, for a holder that is about to write."""
        for source in self.sources:
            (start, rows), (target, _) = self.page_rows(source, old), self.page_rows(source, new)
            for pool in (self.rows, self.keys):
                page = pool[source][mx.arange(start, start + rows)]
                mx.eval(page)  # a copy by now, where a slice would hold the pool that is written to
                self.put(pool, source, slice(target, target + rows), page)

    def arrays(self) -> list[mx.array]:
        """Every cache array, for evaluation."""
        return [*self.window, *self.rows.values(), *self.keys.values(), *self.pairs.values()]

    def holding(self, arrays: Iterable[mx.array]) -> Caches:
        """Caches of the same places on other arrays, in the order of `arrays`."""
        twin, given = copy(self), iter(arrays)
        twin.prepared = None
        twin.window = [next(given) for _ in self.window]
        twin.rows, twin.keys, twin.pairs = ({k: next(given) for k in d} for d in (self.rows, self.keys, self.pairs))
        return twin

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays())
