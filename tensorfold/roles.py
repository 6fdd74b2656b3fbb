"""What each layer owns and what it reads from earlier layers; knows no tensor names, no shapes and no weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LayerRole:
    """The role of one layer of the target network (docs/model.md#config).

    layer: index of the layer. ratio: tokens behind one compressed row, 0 for window attention alone.
    kv_source: layer whose compressed rows are read (itself for an owner), None with ratio 0.
    index_source: layer whose selection is used (itself for an owner), None with ratio 0.
    candidates: "write" for the layer that picks candidate blocks, "read" for an index source bound by them.
    engram: ordinal among the Engram layers. tap: ordinal among the layers whose input, with their Engram in it, feeds
    the drafter.
    """

    layer: int
    ratio: int
    kv_source: int | None
    index_source: int | None
    candidates: Literal["write", "read"] | None
    engram: int | None
    tap: int | None

    @property
    def owns_kv(self) -> bool:
        """True if the layer has a compressor and stores compressed rows."""
        return self.kv_source == self.layer

    @property
    def owns_index(self) -> bool:
        """True if the layer has an indexer and selects compressed rows."""
        return self.index_source == self.layer


class RoleTable(tuple[LayerRole, ...]):
    """One LayerRole a layer, in order; `str()` of it is a table."""

    def __str__(self) -> str:
        head = ("layer", "ratio", "kv", "index", "candidates", "engram", "tap")
        rows = [head] + [_cells(role) for role in self]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)


def _cells(role: LayerRole) -> tuple[str, ...]:
    def source(of: int | None) -> str:
        return "-" if of is None else "own" if of == role.layer else str(of)

    def plain(value: object) -> str:
        return "-" if value is None else str(value)

    return (str(role.layer), str(role.ratio), source(role.kv_source), source(role.index_source),
            plain(role.candidates), plain(role.engram), plain(role.tap))  # fmt: skip


def nearest_source(layer: int, sources: Iterable[int]) -> int | None:
    """The last of the ascending `sources` at or before `layer`, None if there is none."""
    return max((s for s in sources if s <= layer), default=None)


def build_roles(
    ratios: Sequence[int],
    kv_sources: Sequence[int],
    index_sources: Sequence[int],
    candidate_source: int,
    engram_layers: Sequence[int],
    taps: Sequence[int],
) -> RoleTable:
    """The table for target layers 0..len(ratios)-1; a layer reads the nearest source at or before it."""
    roles = []
    for layer, ratio in enumerate(ratios):
        kv = nearest_source(layer, kv_sources) if ratio else None
        index = nearest_source(layer, index_sources) if ratio else None
        candidates: Literal["write", "read"] | None = None
        if layer == candidate_source:
            candidates = "write"
        elif index == layer and layer > candidate_source:
            candidates = "read"
        roles.append(
            LayerRole(
                layer=layer,
                ratio=ratio,
                kv_source=kv,
                index_source=index,
                candidates=candidates,
                engram=engram_layers.index(layer) if layer in engram_layers else None,
                tap=taps.index(layer) if layer in taps else None,
            )
        )
    return RoleTable(roles)
