"""The cone: which layers the rows of a prompt run; follows from roles and window, knows no rows and no weights.

A layer behind the last KV source leaves nothing behind but window rows, which only the next W - 1 positions read. So of
a long prompt only the last rows need run it, and the others end at that source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.roles import LayerRole

EVERY = 2**62  # more rows than any prompt has


@dataclass(frozen=True)
class Cone:
    """needs: for each layer, how many of a prompt's last rows run it, EVERY before the last KV source; that source's
    entry and compressor run for every row."""

    needs: tuple[int, ...]

    @staticmethod
    def of(roles: Sequence[LayerRole], window: int) -> Cone:
        """The last layer must run what the next token reads, `window` rows; each one before it all that these read."""
        owner, last = max(r.layer for r in roles if r.owns_kv), len(roles) - 1
        above = (window + (last - r.layer) * (window - 1) for r in roles)
        return Cone(tuple(EVERY if r.layer < owner else rows for r, rows in zip(roles, above)))

    @property
    def least(self) -> int:
        """How many layers every row runs."""
        return self.depth(EVERY - 1)

    def depth(self, behind: int) -> int:
        """How many layers a row runs that `behind` rows of its prompt follow."""
        return sum(behind < rows for rows in self.needs)

    def readable(self, length: int) -> list[int]:
        """The first position, layer by layer, whose window row means anything before a prompt of `length` is read."""
        return [max(0, length - rows) for rows in self.needs]
