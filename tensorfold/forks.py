"""Forks: a child has its parent's memory and none of its threads. So models stand still while a process forks, that no
lock is held which nobody in the child could ever free; and where the parent had used MLX, the child loads nothing.
Knows workers alone."""

from __future__ import annotations

import os
import threading

import mlx.core as mx

from tensorfold.engine.worker import workers

PATIENCE = 3.0  # seconds; what takes longer than a round, as a load does, is not waited for
_used_by: int | None = None  # the process that had used MLX when it last forked
_forking = threading.local()


def check() -> None:
    """Raises RuntimeError in a fork of a process that had used MLX: whatever is computed there may wait for ever."""
    if _used_by not in (None, os.getpid()):
        raise RuntimeError(
            "this process was forked from one that had used MLX, and has neither its threads nor its device: "
            'start it with multiprocessing\'s "spawn", or fork before MLX is used'
        )


def _before() -> None:
    global _used_by
    if _used_by is None and (mx.get_peak_memory() or mx.get_active_memory() or mx.get_cache_memory()):
        _used_by = os.getpid()
    _forking.go_on = [worker.stand_still(mx.synchronize, PATIENCE) for worker in list(workers)]


def _after() -> None:
    for go_on in _forking.go_on:
        go_on()


os.register_at_fork(before=_before, after_in_parent=_after)
