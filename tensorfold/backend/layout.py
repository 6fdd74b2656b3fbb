"""How one cache row is packed into bytes: codes first, then scales. Knows sizes, no arithmetic.

Packing loses nothing: every value the network stores has been rounded to the format first (docs/model.md#numbers).
"""

from __future__ import annotations

from enum import Enum


class RowKind(Enum):
    """The three packed rows: element format, scale format, elements a scale."""

    WINDOW = ("e4m3", "ue8m0", 32)
    COMPRESSED = ("e2m1", "e4m3", 16)
    KEY = ("e2m1", "ue8m0", 32)

    @property
    def block(self) -> int:
        """Elements that share one scale byte."""
        return self.value[2]

    def code_bytes(self, dim: int) -> int:
        """Bytes of the codes of a row of `dim` elements."""
        return dim if self.value[0] == "e4m3" else dim // 2

    def row_bytes(self, dim: int) -> int:
        """Bytes of a whole packed row of `dim` elements, scales included."""
        return self.code_bytes(dim) + dim // self.block

    def dim(self, row_bytes: int) -> int:
        """Elements of a packed row of `row_bytes` bytes."""
        per_block = self.code_bytes(self.block) + 1
        return row_bytes // per_block * self.block
