"""Turns on a model's thread: calls between rounds, rounds that callers share, and what an error or an end leaves."""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tensorfold.engine.worker import Gone, Worker

THREADS = 6


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test")
    yield worker
    worker.stop()
    worker.join()


@contextmanager
def busy(call: Callable[[], object]) -> Iterator[None]:
    """Threads that call one after another, without a pause."""
    stop = threading.Event()

    def go() -> None:
        while not stop.is_set():
            call()

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(go) for _ in range(THREADS)]
        yield
        stop.set()
    for done in calls:
        done.result()


@contextmanager
def held_up(worker: Worker) -> Iterator[None]:
    """What is called meanwhile waits for its turn."""
    begun, go_on = threading.Event(), threading.Event()
    worker.post(lambda: begun.set() or go_on.wait())
    begun.wait()
    yield
    go_on.set()


def waiting(worker: Worker, count: int) -> None:
    while worker._jobs.qsize() < count:
        time.sleep(0.001)


def test_a_call_gets_in_after_at_most_one_round_however_many_threads_step(worker: Worker) -> None:
    rounds = list[int]()

    def one_round() -> None:
        rounds.append(len(rounds))
        time.sleep(0.001)

    with busy(lambda: worker.round(one_round)):
        while len(rounds) < THREADS:
            time.sleep(0.001)
        waited = []
        for _ in range(40):
            before = len(rounds)
            waited.append(worker.run(lambda: len(rounds)) - before)
    assert max(waited) <= 1


def test_rounds_go_on_however_many_calls_come(worker: Worker) -> None:
    """Each call is followed by the next before it ends; a round waits for those alone that were there before it."""
    calls = list[int]()

    def call() -> None:
        calls.append(0)
        if len(calls) < 10_000:
            worker.post(call)

    with ThreadPoolExecutor(1) as pool:
        with held_up(worker):
            worker.post(call)
            worker.post(call)
            before_round = pool.submit(worker.round, lambda: len(calls))
            waiting(worker, 3)
        assert before_round.result() == 2


def test_who_waits_at_the_same_time_shares_a_round(worker: Worker) -> None:
    rounds = list[int]()
    with ThreadPoolExecutor(THREADS) as pool:
        with held_up(worker):
            results = [pool.submit(worker.round, lambda: rounds.append(0) or len(rounds)) for _ in range(THREADS)]
            waiting(worker, THREADS)
        assert [r.result() for r in results] == [1] * THREADS
        with held_up(worker):
            results = [pool.submit(worker.round, lambda: 1 // 0) for _ in range(THREADS)]
            waiting(worker, THREADS)
        assert all(isinstance(r.exception(), ZeroDivisionError) for r in results)
    assert worker.round(lambda: rounds.append(0) or len(rounds)) == 2


class Array:
    """What must be freed on the worker's thread."""


def test_what_is_raised_keeps_its_lines_and_holds_nothing(worker: Worker) -> None:
    """Its causes too, and without a collection."""
    seen = list[weakref.ref[Array]]()

    def deeper() -> None:
        array = Array()
        seen.append(weakref.ref(array))
        raise KeyError("first")

    def job() -> None:
        array = Array()
        seen.append(weakref.ref(array))
        try:
            deeper()
        except KeyError as error:
            raise ValueError("second") from error

    for call in (worker.run, worker.round):
        with pytest.raises(ValueError, match="second") as kept:
            call(job)
        told = "".join(traceback.format_exception(kept.value))
        assert all(line in told for line in ("in deeper", 'KeyError("first")', "in job", "call(job)"))
    assert len(seen) == 4 and not any(array() for array in seen)


def test_whom_the_end_overtakes_is_refused_and_does_not_wait(worker: Worker) -> None:
    """Calls before the end are answered; a round that was wanted, and a call that came too late, are refused."""
    with ThreadPoolExecutor(2) as pool:
        with held_up(worker):
            call, turn = pool.submit(worker.run, lambda: 7), pool.submit(worker.round, lambda: 7)
            waiting(worker, 2)
            worker.stop()
        assert call.result() == 7
        with pytest.raises(Gone, match="closed: load it again"):
            turn.result()
        worker.join()
        with pytest.raises(Gone):
            worker.run(lambda: 7)
        worker._stopped = False  # as who looked just before
        with pytest.raises(Gone):
            pool.submit(worker.run, lambda: 7).result(60)
