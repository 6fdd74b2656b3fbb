"""Residents: the models open in this process, which share its memory; a load is planned beside them. Knows no parts."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

from tensorfold.description import Description
from tensorfold.memory import CapacityError, LoadPlan, Resident, plan

GOING_S = 10.0  # how long a load that does not fit waits for models that are being closed


class Residents:
    """Counts what open models take, so that a load is planned with what is left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[object, tuple[Resident, Callable[[], bool]]] = {}

    def admit(
        self, about: Description, *wanted: Any, going: Callable[[], bool] = lambda: False
    ) -> tuple[LoadPlan, object]:
        """A load's plan and what `release` takes; `wanted` as in `plan`. `going` tells whether the model is being
        closed by now. Raises CapacityError, which names the models that are open."""
        try:
            return self._admit(about, wanted, going)
        except CapacityError:
            if not self._open:
                raise
        gc.collect()  # a model that was dropped may hang in a cycle
        with self._changed:
            self._changed.wait_for(lambda: not any(gone() for _, gone in self._open.values()), GOING_S)
        return self._admit(about, wanted, going)

    def release(self, key: object) -> None:
        """Takes a model off again."""
        with self._changed:
            self._open.pop(key, None)
            self._changed.notify_all()

    def _admit(self, about: Description, wanted: tuple[Any, ...], going: Callable[[], bool]) -> tuple[LoadPlan, object]:
        with self._changed:
            planned = plan(about, *wanted, others=[resident for resident, _ in self._open.values()])
            key = object()
            self._open[key] = planned.resident, going
            return planned, key


RESIDENTS = Residents()
