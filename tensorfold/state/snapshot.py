"""A slot's readable state at one length, kept apart from the slot: copies of its rings and open pairs, shared pages."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.cone import Cone
from tensorfold.state.caches import PAGE_TOKENS


@dataclass(frozen=True, eq=False)
class Snapshot:
    """State after `ids`: rings uint8 [W, bytes] by layer and stage, open pairs float32 [2, hd],
    pages held for its rows. whole_at: the holder's."""

    ids: np.ndarray
    window: list[mx.array]
    pairs: dict[int, mx.array]
    pages: list[int]
    whole_at: int = 0

    @property
    def length(self) -> int:
        return len(self.ids)

    def serves(self, length: int, cone: Cone) -> bool:
        """Whether a prompt that needs all layers' rows at `length` may go on from here: they are there by then, or none
        of the cone's begin before."""
        return self.whole_at <= length or cone.depth(length - self.length) == cone.least

    @property
    def nbytes(self) -> int:
        """Bytes of the copies; pages are counted by the pools that own them."""
        return sum(a.nbytes for a in [*self.window, *self.pairs.values()]) + self.ids.nbytes


def page_count(length: int) -> int:
    """Pages that `length` tokens need."""
    return -(-length // PAGE_TOKENS)
