"""How many drafts each slot gets: what its drafts have paid against what rows and draft passes cost;
never affects tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from tensorfold.engine.slot import Slot

_FIRST_GUESS = 0.6  # acceptance of an untried draft: high enough that drafting is tried
_MEMORY = 0.9
_PROBE_EVERY = 48


class RoundCosts:
    """Seconds of a round as base + rows * row + draft pass, fitted to the last rounds without a prompt chunk."""

    def __init__(self, history: int = 96):
        self._seen: deque[tuple[float, float, float, float]] = deque(maxlen=history)
        self._fit = (1.0, 0.1, 0.3)
        self._count = 0

    def add(self, rows: int, drafted: bool, seconds: float) -> None:
        """One round's rows, whether it ran a draft pass, and its time."""
        self._seen.append((1.0, float(rows), float(drafted), seconds))
        self._count += 1
        if self._count % 8 == 0:
            data = np.array(self._seen)
            typical = data[data[:, 3] <= 3 * np.median(data[:, 3])]  # a first compile is no cost of drafting
            fit, *_ = np.linalg.lstsq(typical[:, :3], typical[:, 3], rcond=None)
            self._fit = tuple(np.maximum(fit, 1e-9))

    def seconds(self, rows: int, drafted: bool) -> float:
        """Expected seconds of a round."""
        base, row, draft = self._fit
        return base + rows * row + draft * drafted


def observe(slot: Slot, drafted: int, accepted: int) -> None:
    """Moves the slot's acceptance by position: position j counts when the drafts before it were right."""
    slot.acceptance += [_FIRST_GUESS] * (drafted - len(slot.acceptance))
    for j in range(min(drafted, accepted + 1)):
        slot.acceptance[j] = _MEMORY * slot.acceptance[j] + (1 - _MEMORY) * (j < accepted)


class DraftBudget:
    """Spreads spare rows over slots by expected gain; `fixed` gives every slot its maximum."""

    def __init__(self, rows: int, fixed: bool):
        self.rows, self.fixed = rows, fixed
        self.costs = RoundCosts()
        self._round = 0

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
        known = slot.acceptance[: j + 1]
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
