"""One thread that owns every MLX array of a model, and the turns that callers from any thread take on it.

Turns: every call that waits, in the order in which they came, then one round for all who wait for one, and again. So a
call gets in after at most one round, and rounds go on however many calls come. Knows no model.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Gone(RuntimeError):
    """A model's thread is not there: the model is closed, or it was loaded in another process."""

    CLOSED = "this model is closed: load it again"
    ELSEWHERE = (
        "this model was loaded in another process, and a fork has neither its thread nor its device: "
        'load it here, or start processes with multiprocessing\'s "spawn"'
    )


class _Call(NamedTuple):
    job: Callable[[], Any]
    result: Future[Any]
    round: bool = False


_Jobs = queue.SimpleQueue[_Call | None]


class Worker:
    """Runs functions one after another on its own thread; who waits for a result gets it, or what was raised.

    What was raised keeps its lines and loses the values of its variables, so that a kept traceback holds no array.
    """

    def __init__(self, name: str):
        self._jobs: _Jobs = queue.SimpleQueue()
        self._ended = threading.Event()
        self._process, self._stopped = os.getpid(), False
        self._thread = threading.Thread(target=_serve, args=(self._jobs, self._ended), name=name, daemon=True)
        self._thread.start()
        workers.add(self)
        _threads.add(self._thread)

    def run(self, job: Callable[[], T]) -> T:
        """The result of `job()`, run on the worker's thread in its turn. An interrupted wait leaves the job to finish
        on its own. Raises Gone, as `job` is then not run."""
        return job() if self.here else self._wait(_Call(job, Future()))

    def round(self, job: Callable[[], T]) -> T:
        """As `run`, for the one job that takes long: all who wait for it at a time share one run of it."""
        return self._wait(_Call(job, Future(), True))

    def post(self, job: Callable[[], Any]) -> None:
        """Runs `job` after the calls before it, without waiting."""
        if not self.elsewhere:
            self._put(_Call(job, Future()))

    @property
    def here(self) -> bool:
        """Whether the caller runs on the worker's thread."""
        return threading.current_thread() is self._thread

    @property
    def elsewhere(self) -> bool:
        """Whether this process is a fork of the worker's: the thread is not there."""
        return os.getpid() != self._process

    def stop(self, last: Callable[[], Any] = lambda: None) -> None:
        """Ends the thread after the calls before it and then `last`, without waiting; later calls are refused. Once is
        enough, and who was interrupted may call it again."""
        if not self._stopped:
            self.post(last)
            self._jobs.put(None)
            self._stopped = True

    def stand_still(self, first: Callable[[], Any], seconds: float) -> Callable[[], None]:
        """Waits, so many seconds at most, until the thread has run `first` in its turn; it then rests until what is
        returned is called."""
        reached, go_on = threading.Event(), threading.Event()

        def rest() -> None:
            first()
            reached.set()
            go_on.wait()

        if not (self.here or self.elsewhere or self._ended.is_set()):
            call = _Call(rest, Future())
            call.result.add_done_callback(lambda _: reached.set())  # refused, or `first` failed
            self._put(call)
            reached.wait(seconds)
        return go_on.set

    def join(self) -> None:
        """Waits for the thread to end."""
        if not (self.here or self.elsewhere):
            self._thread.join()

    def __del__(self) -> None:
        self._jobs.put(None)  # a worker that was dropped leaves no thread behind

    def check(self) -> None:
        """Raises Gone where a call would, at once."""
        if self.elsewhere:
            raise Gone(Gone.ELSEWHERE)
        if self._stopped:
            raise Gone(Gone.CLOSED)

    def _wait(self, call: _Call) -> Any:
        self.check()
        self._put(call)
        try:
            return call.result.result()
        finally:
            del call  # an interrupted caller's traceback must not hold what the job will give

    def _put(self, call: _Call) -> None:
        self._jobs.put(call)
        if self._ended.is_set():  # perhaps after the thread's last look
            _refuse(self._jobs)


def _serve(jobs: _Jobs, ended: threading.Event) -> None:
    waiting: list[_Call] = []  # for the next round
    while not ended.is_set():
        _answer(jobs, waiting, ended)
        if waiting and not ended.is_set():
            _settle(waiting[0].job, [call.result for call in waiting])
            waiting.clear()
    for call in waiting:
        jobs.put(call)
    _refuse(jobs)


def _answer(jobs: _Jobs, waiting: list[_Call], ended: threading.Event) -> None:
    """Every call that is there by now; sleeps until there is one unless a round is wanted."""
    for _ in range(max(jobs.qsize(), 0 if waiting else 1)):
        call = jobs.get()
        if call is None:
            ended.set()
        elif call.round:
            waiting.append(call)
        else:
            _settle(call.job, [call.result])
        del call  # a waiting worker must not keep the last result alive


def _settle(job: Callable[[], Any], results: Sequence[Future[Any]]) -> None:
    """Hands what the job gives, or raises, to those who wait."""
    try:
        value = job()
    except BaseException as error:
        _drop_locals(error)
        error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # this frame holds results
        for result in results:
            result.set_exception(error)
    else:
        for result in results:
            result.set_result(value)


def _drop_locals(error: BaseException) -> None:
    """Frames of the worker hold arrays, which only its own thread may free."""
    seen, rest = set[int](), [error]
    while rest:
        one = rest.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            rest += [e for e in (one.__cause__, one.__context__, *getattr(one, "exceptions", ())) if e is not None]


def _refuse(jobs: _Jobs) -> None:
    while True:
        try:
            call = jobs.get_nowait()
        except queue.Empty:
            return
        if call is not None:
            call.result.set_exception(Gone(Gone.CLOSED))


@atexit.register
def _join_stopped() -> None:
    """A thread that is still freeing arrays when the interpreter goes would abort the process."""
    for thread in list(_threads):
        thread.join(timeout=60)
