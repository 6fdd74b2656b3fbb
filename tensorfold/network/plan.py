"""The plan of one round: which token goes where, as arrays; knows positions and places, no weights and no sampling.

A row attends to cache rows of positions before its segment's start and to the round's own rows up to itself,
all by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import mlx.core as mx
import numpy as np

from tensorfold.config import ModelConfig
from tensorfold.network.rope import RopeTables
from tensorfold.small import padded
from tensorfold.state.caches import PAGE_TOKENS

BUCKET = 64


@dataclass(frozen=True)
class Segment:
    """One slot's rows of a round, from the schedule to the verdict: ids that are known, then drafts.

    place: the slot's in the caches. start: position of the first row. pages: of its compressed rows, as the slot has
    them when the plan is built. heads: rows whose logits are asked for, from 0. drafts: how many of the ids are drafts.
    scored: at how many of the heads, the first ones, a given token is scored; from the others tokens are drawn.
    depth: how many layers its rows run, None for all; see `Cone`.
    """

    place: int
    start: int
    ids: Sequence[int]
    pages: Sequence[int]
    heads: Sequence[int] = ()
    drafts: int = 0
    scored: int = 0
    depth: int | None = None

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def known(self) -> int:
        """Rows that are no drafts."""
        return len(self.ids) - self.drafts

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn."""
        return len(self.heads) > self.scored

    @property
    def drafted(self) -> Sequence[int]:
        return self.ids[self.known :]


@dataclass(frozen=True)
class Compressed:
    """What the layers of one compression ratio need of a round.

    places int32 [S, C]: every compressed row of a segment's slot; visible int32 [max(R, 4)]: how many a row
    may read, with zeros behind (see `small`); closing int32 [M]: the round's rows that complete a compressed row;
    partner int32 [M, ratio]: the group's tokens, into the slots' open pairs and then the round's rows; table: rotary
    table of the closed rows; destination int32 [M]: their cache places.
    """

    places: mx.array
    visible: mx.array
    closing: mx.array
    partner: mx.array
    table: mx.array
    destination: mx.array


@dataclass(frozen=True)
class Plan:
    """Arrays of one round of R rows in S segments; `engram` holds codes and scales for each Engram layer.

    segment int32 [max(R, 4)]: `owner`, with zeros behind it: see `small`. reach: how many rows run each layer, always
    the first ones.
    """

    segments: tuple[Segment, ...]
    ids: mx.array
    segment: mx.array
    window: mx.array
    window_table: mx.array
    compressed_table: mx.array
    compressed: dict[int, Compressed]
    engram: tuple[tuple[mx.array, mx.array], ...]
    head: mx.array
    reach: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.ids.shape[0]

    def first(self, rows: int) -> Plan:
        """The plan of the first rows alone, beside all compressed rows that the round adds."""
        if rows == self.rows:
            return self
        segments = tuple(s for s, first in zip(self.segments, self.firsts) if first < rows)
        engram = tuple((codes[:rows], scales[:rows]) for codes, scales in self.engram)
        per_row = {name: getattr(self, name)[:rows] for name in ("ids", "window", "window_table", "compressed_table")}
        return replace(self, segments=segments, engram=engram, **per_row)

    @property
    def firsts(self) -> list[int]:
        """The first row of each segment."""
        return [0, *accumulate(s.rows for s in self.segments)][:-1]

    @property
    def owner(self) -> mx.array:
        """int32 [R]: the segment of each row."""
        return self.segment[: self.rows]


class Planner:
    """Builds plans; sizes come from the config and from the caches it plans for."""

    def __init__(self, config: ModelConfig):
        self.config = config
        self.ratios = sorted({r.ratio for r in config.roles if r.ratio})
        self.rope = RopeTables(config)

    def build(
        self, segments: Sequence[Segment], slots: int, pages: int, engram: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    ) -> Plan:
        """A plan for `segments` in order, the deepest first, over caches of `slots` slots and `pages` pages."""
        reach = self._reach(segments)
        counts = [s.rows for s in segments]
        firsts = np.cumsum([0, *counts])[:-1]
        position = np.concatenate([np.arange(s.start, s.start + s.rows) for s in segments])
        owner = np.repeat(np.arange(len(segments)), counts)
        head = [first + i for s, first in zip(segments, firsts) for i in s.heads]
        return Plan(
            segments=tuple(segments),
            ids=_int32(np.concatenate([np.asarray(s.ids, np.int32) for s in segments])),
            segment=_int32(padded(owner)),
            window=_int32(self._window_places(segments, firsts, position, owner, slots)),
            window_table=self.rope.window(position),
            compressed_table=self.rope.compressed(position),
            compressed={r: self._compressed(r, segments, firsts, position, owner, slots, pages) for r in self.ratios},
            engram=tuple((mx.array(c), mx.array(s)) for c, s in engram),
            head=_int32(np.array(head)),
            reach=reach,
        )

    def _reach(self, segments: Sequence[Segment]) -> tuple[int, ...]:
        """How many rows run each layer."""
        layers, least = self.config.num_hidden_layers, self.config.cone.least
        depths = [layers if s.depth is None else s.depth for s in segments]
        if depths != sorted(depths, reverse=True) or not least <= depths[-1] <= depths[0] <= layers:
            raise ValueError(f"segments of depths {depths}: the deepest comes first, {least} to {layers} layers each")
        if any(s.heads and depth < layers for s, depth in zip(segments, depths)):
            raise ValueError("a segment with heads runs all layers")
        return tuple(sum(s.rows for s, depth in zip(segments, depths) if depth > i) for i in range(layers))

    def _window_places(
        self, segments: Sequence[Segment], firsts: np.ndarray, position: np.ndarray, owner: np.ndarray, slots: int
    ) -> np.ndarray:
        """int [R, W]: positions max(0, p-W+1)..p ascending, then empty;
        a place is in the slot's ring or among the rows."""
        width = self.config.sliding_window
        each = np.array([s.place for s in segments]), firsts, np.array([s.start for s in segments])
        place, first, start = (a[owner][:, None] for a in each)
        at = np.maximum(0, position - width + 1)[:, None] + np.arange(width)
        places = np.where(at < start, place * width + at % width, (slots + 1) * width + first + at - start)
        return np.where(at <= position[:, None], places, -1)

    def _compressed(
        self, ratio: int, segments: Sequence[Segment], firsts: np.ndarray, position: np.ndarray, owner: np.ndarray,
        slots: int, pages: int,
    ) -> Compressed:  # fmt: skip
        per_page = PAGE_TOKENS // ratio
        closing = np.flatnonzero((position + 1) % ratio == 0)
        rank = np.searchsorted(closing, firsts)  # a segment's first closed row among the new ones
        longest = max((s.start + s.rows) // ratio for s in segments)
        places = np.full((len(segments), bucket(longest)), -1)
        destination = np.zeros(len(closing), np.int64)
        for i, s in enumerate(segments):
            done, end = s.start // ratio, (s.start + s.rows) // ratio
            row = np.arange(end)
            table = np.asarray(s.pages, np.int64)
            stored = table[row // per_page] * per_page + row % per_page if end else row
            places[i, :end] = np.where(row < done, stored, pages * per_page + rank[i] + row - done)
            destination[rank[i] : rank[i] + end - done] = stored[done:]
        place, first = (a[owner][closing] for a in (np.array([s.place for s in segments]), firsts))
        back = closing[:, None] + np.arange(1 - ratio, 1)
        partner = np.where(back < first[:, None], place[:, None], slots + 1 + back)
        rotary = self.rope.compressed((position[closing] // ratio) * ratio)
        visible = (position + 1) // ratio
        return Compressed(
            _int32(places), _int32(padded(visible)), _int32(closing), _int32(partner), rotary, _int32(destination)
        )


def bucket(rows: int) -> int:
    """At least `rows`: a multiple of 64 up to 512, then of an eighth of the power of two below, so that few graphs are
    built and little of a round is empty."""
    step = max(BUCKET, (1 << max(rows - 1, 1).bit_length()) // 16)
    return max(BUCKET, -(-rows // step) * step)


def _int32(a: np.ndarray) -> mx.array:
    return mx.array(a.astype(np.int32))
