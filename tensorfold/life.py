"""Life: the parts of a loaded model on their own thread, from the load to the close; knows no prompts and no slots.

Callers hand in jobs and get what these give, never a part itself: so no frame of a caller holds an array, and `close`
empties everything, whoever still refers to it.
"""

from __future__ import annotations

import atexit
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import mlx.core as mx

from tensorfold import forks, loading
from tensorfold.engine.worker import Gone, Worker

T = TypeVar("T")
_lives: weakref.WeakSet[Life] = weakref.WeakSet()


class Life:
    """One loaded model. Jobs get its parts; they take turns with the rounds as `Worker` says."""

    def __init__(self, folder: Path, options: loading.Options):
        """Loads. An interrupt stops the load at its next layer and leaves nothing behind. Raises RuntimeError in a
        fork of a process that had used MLX."""
        forks.check()
        self._held: list[loading.Parts] = []  # empty before the load and after the close
        self._closing = threading.Event()
        self.worker = Worker("tensorfold")
        _lives.add(self)
        try:
            self.worker.run(partial(_load, self._held, folder, options, self._closing))
        except BaseException:
            self._let_go()
            raise

    @property
    def closed(self) -> bool:
        """Whether the model was closed."""
        return self._closing.is_set()

    @property
    def parts(self) -> loading.Parts:
        """For the worker's thread, and for who looks and keeps nothing. Raises Gone once closed."""
        return _of(self._held)

    def run(self, job: Callable[[loading.Parts], T]) -> T:
        """What `job(parts)` gives, in its turn between rounds."""
        return self.worker.run(partial(_call, self._held, job))

    def round(self) -> bool:
        """One round over all open slots, shared by all who wait for one; True while any slot is unfinished."""
        return self.worker.round(partial(_call, self._held, _step))

    def close(self) -> None:
        """Ends open slots and frees weights and caches; waits for the end of the round that runs."""
        self._let_go()
        self.worker.join()

    def _let_go(self) -> None:
        self._closing.set()
        self.worker.stop(partial(_unload, self._held))

    def __del__(self) -> None:
        if hasattr(self, "worker"):
            self._let_go()


def _of(held: list[loading.Parts]) -> loading.Parts:
    if not held:
        raise Gone(Gone.CLOSED)
    return held[0]


def _call(held: list[loading.Parts], job: Callable[[loading.Parts], T]) -> T:
    return job(_of(held))


def _step(parts: loading.Parts) -> bool:
    return parts.engine.step()


def _load(held: list[loading.Parts], folder: Path, options: loading.Options, closing: threading.Event) -> None:
    held.append(loading.load(folder, options, closing.is_set))


def _unload(held: list[loading.Parts]) -> None:
    """On the thread that made the arrays and graphs: MLX wants them freed there, before it ends."""
    while held:
        held.pop().close()
    gc.collect()  # what a load that failed left in cycles
    mx.clear_cache()


@atexit.register
def _close_all() -> None:
    """Compiled graphs left on a thread that outlives the interpreter would abort the process."""
    for life in list(_lives):
        life.close()
