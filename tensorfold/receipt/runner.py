"""A network over known ids, through the very caches and commits of the engine; samples nothing, judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from tensorfold.backend.ops import OpsBackend
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.engine.commit import Commit
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import EngramTables
from tensorfold.network.forward import Forward, Network
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.state.caches import Caches
from tensorfold.state.slot_memory import readable
from tensorfold.state.snapshot import page_count
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer

ForwardCall = Callable[[Plan, Caches], Forward]


class Computed(NamedTuple):
    """Logits float32 of the asked rows, and every cache row that a later token can read."""

    logits: np.ndarray
    rows: dict[str, np.ndarray]

    def same(self, other: Computed) -> bool:
        """Equal bits in logits and readable rows."""
        return not self.differences(other)

    def differences(self, other: Computed) -> list[str]:
        """What has other bits, by name; none for equal runs."""
        a, b = {"logits": self.logits, **self.rows}, {"logits": other.logits, **other.rows}
        return [k for k in sorted(a.keys() | b.keys()) if k not in a or k not in b or _bits(a[k]) != _bits(b[k])]


def _bits(a: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return a.shape, np.ascontiguousarray(a).tobytes()


class Runner:
    """One checkpoint with one backend; `backend(config, **options)` makes it."""

    def __init__(self, folder: Path, backend: Callable[..., Any] = OpsBackend, drafter: bool = True, **options: bool):
        self.checkpoint = Checkpoint.open(folder, drafter=drafter)
        self.config = c = self.checkpoint.config
        self.backend = backend(c, **options)
        self.network = Network(self.checkpoint, c, self.backend)
        self.drafter = Drafter(self.checkpoint, c, self.backend, self.network) if self.checkpoint.has_drafter else None
        self.planner = Planner(c)
        hashed = bool(c.engram_layer_ids)
        token_map = engram_token_map(Tokenizer.from_folder(folder, c), c) if hashed else np.zeros(0, np.int32)
        self.engram = EngramTables(self.checkpoint, c, token_map)

    def __call__(self, ids: Sequence[int], chunk: int | Iterable[int], heads: Sequence[int] | None = None) -> Computed:
        """Runs `ids` from an empty slot in chunks of one size or of the sizes given; logits of rows `heads` or all."""
        sizes = [chunk] * -(-len(ids) // chunk) if isinstance(chunk, int) else list(chunk)
        wanted, logits, start = set(range(len(ids)) if heads is None else heads), [], 0
        session = Session(self, [ids])
        for end in accumulate(sizes):
            end = min(end, len(ids))
            logits += session([end - start], [[p - start for p in range(start, end) if p in wanted]])
            start = end
        return Computed(np.concatenate(logits), session.rows(0))

    def close(self) -> None:
        """Lets files go; what was loaded stays usable but for Engram rows."""
        self.engram.close()
        self.checkpoint.close()


class Session:
    """Slots of several ids side by side, each from an empty state; `call` is the network or stands for it."""

    def __init__(self, runner: Runner, ids: Sequence[Sequence[int]], call: ForwardCall | None = None):
        self.runner, self.call = runner, call or runner.network
        stages = len(runner.drafter.stages) if runner.drafter else 0
        need = [page_count(len(some)) for some in ids]
        # places that are not the first and pages that are not in order, so that slots, places and pages differ
        self.caches = Caches(runner.config, len(ids) + 2, sum(need) + 1, stages)
        ends = list(accumulate(need))
        self.slots: list[Any] = [
            SimpleNamespace(place=1 + i, committed=0, whole_at=0, ids=list(some), pages=list(range(end, end - n, -1)))
            for i, (some, n, end) in enumerate(zip(ids, need, ends))
        ]

    def __call__(self, counts: Sequence[int], heads: Sequence[Sequence[int]] | None = None) -> list[np.ndarray]:
        """One launch of the next `counts[i]` ids of each slot, 0 for none, and its commit; logits float32 of rows
        `heads[i]` of each slot's, or of all; a slot without such rows has no entry."""
        runner, caches = self.runner, self.caches
        asked = [range(n) for n in counts] if heads is None else heads
        taking = [(s, n, rows) for s, n, rows in zip(self.slots, counts, asked) if n]
        segments, lookups = [], []
        for s, n, rows in taking:
            part = s.ids[s.committed : s.committed + n]
            segments.append(Segment(s.place, s.committed, part, s.pages, list(rows)))
            lookups.append((s.ids[max(0, s.committed - runner.config.engram_history) : s.committed], part))
        plan = runner.planner.build(segments, caches.slots, caches.pages, runner.engram.gather(lookups))
        new = self.call(plan, caches)
        rings = runner.drafter.ingest(new.taps, plan.window_table) if runner.drafter and new.taps is not None else []
        commit = Commit(caches, plan, new, rings, runner.backend, False)
        commit.keep(mx.array([n for _, n, _ in taking], mx.int32))
        mx.eval([] if new.logits is None else new.logits, caches.arrays())
        for s, n, _ in taking:
            s.committed += n
        if new.logits is None:
            return []
        ends = list(accumulate(len(rows) for _, _, rows in taking))
        return [part for part in np.split(np.array(new.logits), ends[:-1]) if len(part)]

    def rows(self, slot: int) -> dict[str, np.ndarray]:
        """Every cache row of a slot that a later token can read."""
        s = self.slots[slot]
        return readable(self.caches, SimpleNamespace(**{**vars(s), "ids": s.ids[: s.committed]}))  # type: ignore[arg-type]

    def fork(self, call: ForwardCall | None = None) -> Session:
        """A session that goes on from here by itself, its caches copied."""
        twin = object.__new__(Session)
        twin.runner, twin.call = self.runner, call or self.call
        twin.slots = [SimpleNamespace(**vars(s)) for s in self.slots]
        twin.caches = self.caches.holding(map(mx.array, self.caches.arrays()))
        return twin
