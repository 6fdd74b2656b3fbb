"""One thread that owns every MLX array of a model, so that callers may come from any thread; knows no model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions one after another on its own thread; `run` waits for the result and raises what the function raised."""

    def __init__(self, name: str):
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, run on the worker's thread. An interrupted wait leaves the job to finish on its own."""
        if threading.current_thread() is self._thread:
            return job()
        if not self._thread.is_alive():
            raise RuntimeError("the model is closed")
        result: Future[T] = Future()
        self._jobs.put((job, result))
        return result.result()

    def stop(self) -> None:
        """Ends the thread after the jobs before it."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()


def _serve(jobs: queue.SimpleQueue) -> None:
    while (item := jobs.get()) is not None:
        job, result = item
        try:
            result.set_result(job())
        except BaseException as error:  # handed to the caller, whatever it is
            result.set_exception(error)
        del item, job, result  # a waiting worker must not keep the last result alive
