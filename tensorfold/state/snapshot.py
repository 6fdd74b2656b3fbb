"""A slot's readable state at one length, kept apart from the slot: copies of its rings and open pairs, shared pages."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.state.caches import PAGE_TOKENS


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
