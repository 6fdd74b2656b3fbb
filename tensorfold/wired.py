"""The limit of wired memory while models are open: asked for on Metal alone, put back afterwards; knows no model."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx


class WiredLimit:
    """Sums what open models want wired; the limit that was there before the first comes back after the last.

    api: what has `metal.is_available`, `device_info` and `set_wired_limit`, as mlx.core has. Wired buffers are not
    paged out between rounds, which only macOS does to a GPU's memory; elsewhere nothing is set.
    """

    def __init__(self, api: Any = mx) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._wants: dict[object, int] = {}
        self._before: int | None = None

    def hold(self, nbytes: int) -> object:
        """Adds a model's bytes; returns what `release` takes."""
        key = object()
        with self._lock:
            if self._api.metal.is_available():
                self._wants[key] = nbytes
                self._set()
        return key

    def release(self, key: object) -> None:
        """Takes a model's bytes off again; once is enough, and a second time does nothing."""
        with self._lock:
            if self._wants.pop(key, None) is not None:
                self._set()

    def _set(self) -> None:
        """More than the system's own limit is an error of MLX, so the sum is cut there."""
        most = int(self._api.device_info().get("max_recommended_working_set_size", 0))
        wanted = min(sum(self._wants.values()), most) if self._wants else self._before
        before = self._api.set_wired_limit(wanted or 0)
        if self._before is None:
            self._before = before
        if self._before > (wanted or 0):  # somebody asked for more: that stays
            self._api.set_wired_limit(self._before)
        if not self._wants:
            self._before = None


WIRED = WiredLimit()
