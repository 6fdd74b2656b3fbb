"""A network run over known ids in chunks, through the very caches and commits of the engine; it samples nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from tensorfold.backend.ops import OpsBackend
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import EngramTables
from tensorfold.network.forward import Network
from tensorfold.network.plan import Plan, Planner, Window
from tensorfold.state.caches import Caches
from tensorfold.state.commit import Commit
from tensorfold.state.save import readable
from tensorfold.state.snapshot import page_count
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer


class Run(NamedTuple):
    """Logits float32 of the asked rows, and every cache row that a later token can read."""

    logits: np.ndarray
    rows: dict[str, np.ndarray]

    def same(self, other: Run) -> bool:
        """Equal bits in logits and readable rows."""
        return _bits(self.logits) == _bits(other.logits) and {k: _bits(v) for k, v in self.rows.items()} == {
            k: _bits(v) for k, v in other.rows.items()
        }


def _bits(a: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return a.shape, np.ascontiguousarray(a).tobytes()


class Runner:
    """One checkpoint with one backend."""

    def __init__(self, folder: Path, backend: type[OpsBackend] = OpsBackend, drafter: bool = True, **options: bool):
        self.checkpoint = Checkpoint.open(folder, drafter=drafter)
        self.config = c = self.checkpoint.config
        self.backend = backend(c, **options)
        self.network = Network(self.checkpoint, c, self.backend)
        self.drafter = Drafter(self.checkpoint, c, self.backend, self.network) if drafter else None
        self.planner = Planner(c)
        hashed = bool(c.engram_layer_ids)
        token_map = engram_token_map(Tokenizer.from_folder(folder, c), c) if hashed else np.zeros(0, np.int32)
        self.engram = EngramTables(self.checkpoint, c, token_map)

    def __call__(self, ids: Sequence[int], chunk: int | Iterable[int], heads: Sequence[int] | None = None) -> Run:
        """Runs `ids` from an empty slot in chunks of one size or of the sizes given; logits of rows `heads` or all."""
        sizes = [chunk] * -(-len(ids) // chunk) if isinstance(chunk, int) else list(chunk)
        pages, stages = page_count(len(ids)), len(self.drafter.stages) if self.drafter else 0
        slots, own = 3, 1  # a place that is not the first, so that slot and place differ
        caches = Caches(self.config, slots, pages + 1, stages)
        slot: Any = SimpleNamespace(place=own, committed=0, ids=list(ids), pages=list(range(pages, 0, -1)))
        wanted = set(range(len(ids)) if heads is None else heads)
        logits = []
        for end in accumulate(sizes):
            start, end = slot.committed, min(end, len(ids))
            part = ids[start:end]
            plan = self._plan(slot, part, slots, pages + 1, [p - start for p in range(start, end) if p in wanted])
            new = self.network(plan, caches)
            rings = self.drafter.ingest(new.taps, plan.window_table) if self.drafter and new.taps is not None else []
            Commit(caches, plan, new, rings, self.backend, False).keep(mx.array([len(part)], mx.int32))
            if new.logits is not None:
                logits.append(new.logits)
            mx.eval(logits, caches.arrays())
            slot.committed = end
        return Run(np.concatenate([np.array(a) for a in logits]), readable(caches, slot))

    def _plan(self, slot: SimpleNamespace, part: Sequence[int], slots: int, pages: int, heads: list[int]) -> Plan:
        start = slot.committed
        engram = self.engram(slot.ids[max(0, start - 3) : start], part)
        return self.planner.build([Window(slot.place, start, part, slot.pages, heads)], slots, pages, engram)
