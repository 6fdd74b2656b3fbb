"""Experts that do not fit into memory: a pool of those asked for last, filled from the files while a layer waits.

Knows no rounds and no prompts. What a token gets does not depend on which experts were in the pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Output, Quantised
from tensorfold.backend.pool import LEAVES, Room
from tensorfold.checkpoint.pieces import Piece, PieceReader

Key = tuple[str, int]


class PieceSource(Protocol):
    """Where experts' bytes lie: a Checkpoint."""

    def piece(self, name: str) -> Piece: ...


@dataclass(frozen=True)
class Streaming:
    """What streaming did since the model was loaded.

    experts: routed experts of the model. entries: how many have room in memory; resident: how many are there now.
    hits, misses: experts that layers asked for and found, or had to read; each once a layer and round. passes: turns
    beyond the first of layers that asked for more experts than the pool has room for. bytes_read: of the files.
    read_seconds: while reads were on their way; stall_seconds: the part of it in which nothing was computed.
    """

    experts: int
    entries: int
    resident: int
    hits: int = 0
    misses: int = 0
    passes: int = 0
    bytes_read: int = 0
    read_seconds: float = 0.0
    stall_seconds: float = 0.0

    @property
    def slots(self) -> int:
        """`entries`, under the name it had before `slot` was a sequence alone."""
        return self.entries


def routing_read(ids: mx.array) -> np.ndarray:
    """The only place where a streamed network reads device values: the expert ids of a layer's rows, once a MoE layer;
    it waits until they are computed, and with them all layers before."""
    return np.array(ids)


class ExpertPool:
    """Room for `entries` experts, shared by all layers; the one that was not asked for the longest gives way."""

    def __init__(self, backend: Backend, source: PieceSource, entries: int):
        if entries < 1:
            raise ValueError(f"{entries} experts: the pool needs room for at least one")
        self.backend, self.entries = backend, entries
        self._source, self._reader = source, PieceReader()
        self._pieces: dict[Key, list[Piece]] = {}
        self._room: Room[Any] | None = None
        self._known: OrderedDict[Key, int] = OrderedDict()
        self._free = list(reversed(range(entries)))
        self._stats = Streaming(0, entries, 0)

    def layer(self, prefix: str, count: int) -> StreamedExperts:
        """The experts `prefix.0` .. `prefix.{count-1}` of one layer."""
        for e in range(count):
            self._pieces[prefix, e] = [self._source.piece(f"{prefix}.{e}.{leaf}") for leaf in LEAVES]
        if self._room is None:
            self._room = self.backend.expert_room([piece.shape for piece in self._pieces[prefix, 0]], self.entries)
        return StreamedExperts(self, prefix)

    @property
    def weight(self) -> Any:
        """What the backend's `experts` takes, with the entries that `fetch` gives for expert ids."""
        if self._room is None:
            raise ValueError("no layer streams its experts through this pool")
        return self._room.weight

    @property
    def nbytes(self) -> int:
        """Bytes of the pool, as the files store experts."""
        return self.entries * sum(piece.nbytes for piece in next(iter(self._pieces.values()), []))

    @property
    def stats(self) -> Streaming:
        """Counts so far."""
        return replace(self._stats, experts=len(self._pieces), resident=len(self._known))

    def restart(self) -> None:
        """An empty pool and counts from here on: what load tried is nobody's asking."""
        self._known.clear()
        self._free = list(reversed(range(self.entries)))
        self._stats = Streaming(0, self.entries, 0)

    def resident(self, prefix: str, expert: int) -> bool:
        """Whether the expert is in the pool."""
        return (prefix, expert) in self._known

    def fetch(self, prefix: str, experts: Sequence[int], beside: mx.array) -> np.ndarray:
        """int32 entries of these experts of a layer, as many as the pool has at most, each once; missing ones are
        read while `beside` is computed. Nothing may be computing from the pool.

        Raises CheckpointError when one cannot be read; the pool has then none of the missing and goes on working."""
        keys = [(prefix, e) for e in experts]
        missing = [key for key in keys if key not in self._known]
        for key in keys:
            if key in self._known:
                self._known.move_to_end(key)
        if missing:
            self._read(missing, beside)
        s = self._stats
        self._stats = replace(s, hits=s.hits + len(keys) - len(missing), misses=s.misses + len(missing))
        return np.array([self._known[key] for key in keys], np.int32)

    def count_pass(self) -> None:
        self._stats = replace(self._stats, passes=self._stats.passes + 1)

    def close(self) -> None:
        """Ends the reading threads; call it before the files are closed."""
        self._reader.close()

    def _read(self, missing: list[Key], beside: mx.array) -> None:
        entries = [self._take() for _ in missing]
        try:
            self._fill(missing, entries, beside)
        except BaseException:
            self._free += entries
            raise
        self._known.update(zip(missing, entries))

    def _fill(self, missing: list[Key], entries: list[int], beside: mx.array) -> None:
        room = self._room
        if room is None:
            raise ValueError("no layer streams its experts through this pool")
        pairs = [p for key, entry in zip(missing, entries) for p in zip(self._pieces[key], room.parts(entry))]
        reading = self._reader.begin(pairs)
        try:
            mx.eval(beside)
        finally:
            seconds, stall = reading.wait()
        room.filled(entries)
        s = self._stats
        self._stats = replace(
            s, bytes_read=s.bytes_read + sum(piece.nbytes for piece, _ in pairs),
            read_seconds=s.read_seconds + seconds, stall_seconds=s.stall_seconds + stall,
        )  # fmt: skip

    def _take(self) -> int:
        """A free entry, or that of the expert that was not asked for the longest."""
        return self._free.pop() if self._free else self._known.popitem(last=False)[1]


class StreamedExperts:
    """The MoE of one layer whose routed experts come through a pool."""

    def __init__(self, pool: ExpertPool, prefix: str):
        self.pool, self.prefix = pool, prefix

    def __call__(self, x: Quantised, ids: mx.array, weights: mx.array, shared_in: Any, shared_out: Any) -> Output:
        """As the backend's `moe`, with equal bits."""
        backend = self.pool.backend
        mx.async_eval(ids, weights)
        shared = backend.shared(x, shared_in, shared_out)
        mx.async_eval(shared)  # runs while the ids are read, and the experts that are missing
        asked = routing_read(ids)
        experts = np.unique(asked).tolist()
        if len(experts) <= self.pool.entries:
            entries = self.pool.fetch(self.prefix, experts, shared)[np.searchsorted(experts, asked)]
            routed = backend.experts(x, mx.array(entries), weights, self.pool.weight)
        else:
            routed = self._in_passes(x, asked, experts, weights, shared)
        return backend.join_experts(routed, shared)

    def _in_passes(
        self, x: Quantised, asked: np.ndarray, experts: list[int], weights: mx.array, shared: mx.array
    ) -> mx.array:
        """As many experts at a time as the pool holds, pairs of row and pick as rows with one pick each: the bits of a
        pair do not depend on the others. bf16 [R, k, D]."""
        pool, backend = self.pool, self.pool.backend
        rows, picks = asked.shape
        flat, order = asked.reshape(-1), sorted(experts, key=lambda e: not pool.resident(self.prefix, e))
        found, whose = list[mx.array](), list[np.ndarray]()
        for at in range(0, len(order), pool.entries):
            if found:
                mx.eval(found[-1])  # its experts' entries are about to be filled with others
                pool.count_pass()
            group = sorted(order[at : at + pool.entries])
            pairs = np.flatnonzero(np.isin(flat, group)).astype(np.int32)
            entries = pool.fetch(self.prefix, group, shared)[np.searchsorted(group, flat[pairs])]
            mine, weight = mx.array(pairs), weights.reshape(-1, 1)
            found.append(backend.experts(x[mine // picks], mx.array(entries[:, None]), weight[mine], pool.weight)[:, 0])
            whose.append(pairs)
        back = mx.array(np.argsort(np.concatenate(whose)).astype(np.int32))
        return mx.concatenate(found)[back].reshape(rows, picks, -1)
