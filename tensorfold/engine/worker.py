"""One thread that owns every MLX array of a model, so that callers may come from any thread; knows no model."""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Worker:
    """Runs functions one after another on its own thread; `run` waits for the result and raises what the function
    raised."""

    def __init__(self, name: str):
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()
        _threads.add(self._thread)

    def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, run on the worker's thread. An interrupted wait leaves the job to finish on its
        own."""
        if self.here:
            return job()
        if not self._thread.is_alive():
            raise RuntimeError("the model is closed")
        result: Future[T] = Future()
        self._jobs.put((job, result))
        return result.result()

    def post(self, job: Callable[[], Any]) -> None:
        """Runs `job` after the jobs before it, without waiting."""
        self._jobs.put((job, Future()))

    @property
    def here(self) -> bool:
        """Whether the caller runs on the worker's thread."""
        return threading.current_thread() is self._thread

    def __del__(self) -> None:
        self._jobs.put(None)  # a model that was dropped, not closed, leaves no thread behind

    def stop(self, last: Callable[[], Any] = lambda: None) -> None:
        """Ends the thread after the jobs before it and then `last`, without waiting."""
        self.post(last)
        self._jobs.put(None)

    def join(self) -> None:
        """Waits for the thread to end."""
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _serve(jobs: queue.SimpleQueue) -> None:
    while (item := jobs.get()) is not None:
        job, result = item
        try:
            result.set_result(job())
        except BaseException as error:  # handed to the caller, whatever it is
            result.set_exception(error)
        del item, job, result  # a waiting worker must not keep the last result alive


@atexit.register
def _join_stopped() -> None:
    """A thread that is still freeing arrays when the interpreter goes would abort the process."""
    for thread in list(_threads):
        thread.join(timeout=60)
