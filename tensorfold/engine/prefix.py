"""Kept prefixes: snapshots of prompt beginnings within a byte budget, least recently used first out;
knows ids, no text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from tensorfold.state.snapshot import Snapshot


class PrefixStore:
    """Snapshots by their ids; `drop` is called with one that leaves."""

    def __init__(self, budget: int, page_bytes: int, drop: Callable[[Snapshot], None]):
        self.budget, self._page_bytes, self._drop = budget, page_bytes, drop
        self._kept: OrderedDict[bytes, tuple[Snapshot, int]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def has(self, ids: Sequence[int] | np.ndarray, whole_at: int = 0) -> bool:
        """Whether exactly these ids are kept, for no longer prompts alone than those from `whole_at` on."""
        kept = self._kept.get(_key(ids))
        return kept is not None and kept[0].whole_at <= max(len(ids), whole_at)

    def add(self, snapshot: Snapshot) -> None:
        """Keeps a snapshot, if it fits the budget at all; older ones make room."""
        key, size = _key(snapshot.ids), snapshot.nbytes + self._page_bytes * len(snapshot.pages)
        if size > self.budget or self.has(snapshot.ids, snapshot.whole_at):
            self._drop(snapshot)
            return
        if key in self._kept:
            self._remove(key)
        while self.nbytes + size > self.budget:
            self._remove(next(iter(self._kept)))
        self._kept[key] = snapshot, size
        self.nbytes += size

    def best(self, ids: Sequence[int], serves: Callable[[Snapshot], bool] = lambda _: True) -> Snapshot | None:
        """The longest kept beginning of `ids` that is shorter than `ids` and `serves`."""
        wanted = np.asarray(ids, np.int32)
        found = None
        for key, (snapshot, _) in self._kept.items():
            n = snapshot.length
            longer = (found[1].length if found else 0) < n < len(wanted)
            if longer and np.array_equal(wanted[:n], snapshot.ids) and serves(snapshot):
                found = key, snapshot
        if found is None:
            return None
        self._kept.move_to_end(found[0])
        return found[1]

    def clear(self) -> None:
        """Lets every snapshot go."""
        for key in list(self._kept):
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        snapshot, size = self._kept.pop(key)
        self.nbytes -= size
        self._drop(snapshot)


def _key(ids: Sequence[int] | np.ndarray) -> bytes:
    return np.asarray(ids, "<i4").tobytes()
