"""How many drafts each slot gets: what its drafts have paid against what rows and draft passes cost;
never affects tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from tensorfold.engine.slot import Slot

_FIRST_GUESS = 0.6  # acceptance of an untried draft: high enough that drafting is tried
_PROBE_EVERY = 48
_KEPT = 24
_BUILDING = 2  # first rounds of a kind, which compile kernels or are the first to build a graph
_ENOUGH = 4  # rounds of a kind, so that one of them was not held up


class RoundCosts:
    """Seconds of a round as base + rows * row + draft pass, fitted to the quickest of the last rounds of each kind that
    there were enough of.

    Rounds with a prompt chunk do not count. A slow round says something about the machine, not about drafting.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, bool], deque[float]] = {}
        self._built: Counter[tuple[int, bool]] = Counter()
        self._fit = np.array([1.0, 0.1, 0.3])
        self._count = 0

    def add(self, rows: int, drafted: bool, seconds: float) -> None:
        """One round's rows, whether it ran a draft pass, and its time."""
        self._built[rows, drafted] += 1
        if self._built[rows, drafted] <= _BUILDING:
            return
        self._seen.setdefault((rows, drafted), deque(maxlen=_KEPT)).append(seconds)
        self._count += 1
        if self._count % 8 == 0:
            known = {kind: min(times) for kind, times in self._seen.items() if len(times) >= _ENOUGH}
            if known:
                kinds = np.array([(1.0, rows, drafted) for rows, drafted in known])
                self._fit = _fit_costs(kinds, np.array(list(known.values())))

    def seconds(self, rows: int, drafted: bool) -> float:
        """Expected seconds of a round."""
        return float(self._fit @ (1.0, rows, drafted))


def _fit_costs(kinds: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Least squares with no cost below zero: a negative one is held at almost nothing and the others are fitted
    again."""
    costs, free = np.full(kinds.shape[1], 1e-9), np.ones(kinds.shape[1], bool)
    while free.any():
        found, *_ = np.linalg.lstsq(kinds[:, free], seconds, rcond=None)
        if (found > 0).all():
            costs[free] = found
            break
        free[np.flatnonzero(free)[found <= 0]] = False
    return costs


class DraftBudget:
    """Spreads spare rows over slots by expected gain; `fixed` gives every slot its maximum."""

    def __init__(self, rows: int, fixed: bool):
        self.rows, self.fixed = rows, fixed
        self.costs = RoundCosts()
        self.acceptance: list[float] = []  # of all slots so far, where a new one starts from
        self._round = 0

    def observe(self, slot: Slot, drafted: int, accepted: int) -> None:
        """Moves acceptance by position: position j counts when the drafts before it were right."""
        for known, start, memory in ((slot.acceptance, self.acceptance, 0.85), (self.acceptance, [], 0.97)):
            for j in range(len(known), drafted):
                known.append(start[j] if j < len(start) else _FIRST_GUESS)
            for j in range(min(drafted, accepted + 1)):
                known[j] = memory * known[j] + (1 - memory) * (j < accepted)

    def wanted(self, slots: Sequence[Slot]) -> list[int]:
        """Drafts that each decoding slot should have in the next round;
        all slots together stay within the rows of a round."""
        self._round += 1
        limits = [max(0, min(s.max_drafts, s.remaining - 1)) for s in slots]
        spare = max(0, self.rows - len(slots))
        if not self.fixed and self._round % _PROBE_EVERY:
            limits = [min(limit, self._best(s, limit, len(slots))) for s, limit in zip(slots, limits)]
        return self._share(slots, limits, spare)

    def _gain(self, slot: Slot, j: int) -> float:
        """Probability that draft j and those before it are right."""
        known = (slot.acceptance + self.acceptance[len(slot.acceptance) :])[: j + 1]
        return float(np.prod(known + [_FIRST_GUESS] * (j + 1 - len(known))))

    def _best(self, slot: Slot, limit: int, slots: int) -> int:
        """The number of drafts with the most expected tokens a second, were all slots alike."""
        best, rate = 0, 1.0 / self.costs.seconds(slots, False)
        tokens = 1.0
        for k in range(1, limit + 1):
            tokens += self._gain(slot, k - 1)
            now = tokens / self.costs.seconds(slots * (1 + k), True)
            if now > rate:
                best, rate = k, now
        return best

    def _share(self, slots: Sequence[Slot], limits: list[int], spare: int) -> list[int]:
        given = [0] * len(slots)
        while spare:
            open_ = [i for i in range(len(slots)) if given[i] < limits[i]]
            if not open_:
                break
            given[max(open_, key=lambda i: (self._gain(slots[i], given[i]), -i))] += 1
            spare -= 1
        return given
