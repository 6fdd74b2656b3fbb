"""Who waits for a slot and who runs rounds: counted, not timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tensorfold import CapacityError, Model, rounds
from tensorfold.engine.lanes import Lanes
from tests.engine.mock import greedy
from tests.engine.mock_model import mock_model

PLAIN = {"draft": False}  # a token a round


@pytest.fixture
def model() -> Iterator[Model]:
    """Two slots. Nothing is open, and nobody waits, afterwards."""
    with mock_model(slots=2) as model:
        yield model
        assert model._engine.free == 2 and not model._engine._line


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The prompts' first ids of each round's slots."""
    seen: list[set[int]] = []
    run = Lanes.round
    monkeypatch.setattr(
        Lanes, "round", lambda self, slots: (seen.append({s.ids[0] for s in slots if not s.done}), run(self, slots))[1]
    )
    return seen


class Reader:
    """A thread of its own that reads a stream when it is told to."""

    def __init__(self, model: Model, prompt: list[int], **options: Any):
        self.thread = ThreadPoolExecutor(1)
        self.stream = self.do(lambda: model.stream(prompt, **PLAIN, **options))
        self.tokens = self.do(lambda: next(self.stream).tokens)

    def do(self, call: Callable[[], Any]) -> Any:
        return self.thread.submit(call).result(60)

    def rest(self) -> list[int]:
        self.tokens += [t for piece in self.do(lambda: list(self.stream)) for t in piece.tokens]
        return self.tokens


def until(happened: Callable[[], Any]) -> None:
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen")


def in_line(model: Model, count: int) -> None:
    until(lambda: len(model._engine._line) == count)


def looked(model: Model) -> None:
    """Long enough for who waits to have looked around several times."""
    time.sleep(4 * rounds.LOOK_S)


def test_who_waits_runs_no_round_for_others(model: Model, ran: list[set[int]]) -> None:
    """Two streams that are read slowly stay where their readers are; who waits begins when one of them ends."""
    want = [greedy([p, 4], 12) for p in (10, 11, 12)]
    one, two = Reader(model, [10, 4], max_tokens=12), Reader(model, [11, 4], max_tokens=12)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.generate, [12, 4], max_tokens=12, **PLAIN)
        in_line(model, 1)
        ran.clear()
        looked(model)
        assert ran == [] and not waiting.done()
        assert one.rest() == want[0]
        assert waiting.result(60).tokens == want[2]
    assert two.rest() == want[1]
    assert ran[:2] == [{10, 11}] * 2 and not any({10, 12} <= r for r in ran)


def test_a_reader_takes_what_is_there_before_it_runs_a_round(model: Model, ran: list[set[int]]) -> None:
    """Rounds of one caller carry on the others, and the others' next pieces cost none."""
    with model.open([10, 4], max_tokens=9, **PLAIN) as handle:
        stream = model.stream([11, 4], max_tokens=12, **PLAIN)
        while not handle.done:
            model.step()
        ran.clear()
        first = next(stream).tokens
        assert len(first) >= 8 and ran == []
        assert first + [t for piece in stream for t in piece.tokens] == greedy([11, 4], 12)
        assert ran == [{11}] * (12 - len(first))


def test_a_thread_that_waits_carries_on_its_own_streams_alone(model: Model, ran: list[set[int]]) -> None:
    """Nobody else could read them meanwhile; nothing of them is lost, and streams of others stay where they are."""
    other = Reader(model, [10, 4], max_tokens=12)
    stream = model.stream([11, 4], max_tokens=12, **PLAIN)
    mine = next(stream).tokens
    ran.clear()
    model.generate([12, 4], max_tokens=1, **PLAIN)
    assert {10} not in ran and {10, 11} not in ran and ran.count({11}) >= 10
    assert mine + [t for piece in stream for t in piece.tokens] == greedy([11, 4], 12)
    assert len(other.rest()) == 12


@pytest.mark.parametrize("why", ["its reader is gone", "its reader has not come back"])
def test_a_reply_that_nobody_attends_to_does_not_hold_its_slot_for_ever(
    model: Model, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    readers = [Reader(model, [10 + i, 4], max_tokens=12) for i in range(2)]
    if why == "its reader is gone":
        readers[0].thread.shutdown()
    else:
        monkeypatch.setattr(rounds, "ATTENDED_S", 0.3)
    assert len(model.generate([12, 4], max_tokens=3, **PLAIN).tokens) == 3
    for reader in readers:
        reader.thread = ThreadPoolExecutor(1)
        assert len(reader.rest()) == 12


CALLS: dict[str, Callable[..., Any]] = {
    "open": lambda model, **o: model.open([12, 4], max_tokens=3, **PLAIN, **o).close(),
    "stream": lambda model, **o: list(model.stream([12, 4], max_tokens=3, **PLAIN, **o)),
    "generate": lambda model, **o: model.generate([[12, 4], [13, 4]], max_tokens=3, **PLAIN, **o),
    "score": lambda model, **o: model.score([12, 4], [[5, 6], [7]], **o),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_call_waits_if_it_is_told_to(model: Model, ran: list[set[int]], call: Callable[..., Any]) -> None:
    """Until a handle is closed, or for so many seconds, or not at all; a wait that failed leaves nobody in line."""
    held = [model.open([10 + i, 4], max_tokens=3, **PLAIN) for i in range(2)]
    for refused, message in ((False, "all 2 slots are open"), (0, "within 0 s"), (0.1, "within 0.1 s")):
        with pytest.raises(CapacityError, match=message):
            call(model, wait=refused)
        assert not model._engine._line
    assert ran == []
    for wait, free in ((True, held[0].close), (60, held.clear)):  # a handle that is dropped counts as closed
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call, model, wait=wait)
            in_line(model, 1)
            looked(model)
            assert not waiting.done() and ran == []
            free()
            waiting.result(60)
        ran.clear()
        if held:
            held[0] = model.open([10, 4], max_tokens=3, **PLAIN)


@pytest.mark.parametrize("wait,error", [("a", TypeError), (-1, ValueError), (float("nan"), ValueError)])
def test_a_wait_that_is_none_is_refused(model: Model, wait: Any, error: type[Exception]) -> None:
    for call in CALLS.values():
        with pytest.raises(error, match="wait="):
            call(model, wait=wait)
    with pytest.raises(TypeError, match="cancel="):
        model.generate([5], cancel=1)
    with pytest.raises(TypeError, match="on_result="):
        model.generate([5], on_result=1)


def test_slots_are_given_first_come_first_served(model: Model) -> None:
    """Also to a call without a wait, which does not get in before those who wait."""
    held = [model.open([10, 4]) for _ in range(2)]
    got: list[int] = []
    begun = []

    def wait(i: int) -> None:
        begun.append(model.open([20 + i, 4], wait=True))
        got.append(i)

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(4)]
    for i, thread in enumerate(threads):
        thread.start()
        in_line(model, i + 1)
    for i in range(4):
        (held[i] if i < 2 else begun[i - 2]).close()
        with pytest.raises(CapacityError):
            model.open([30, 4])
        until(lambda i=i: len(got) == i + 1)
    assert got == [0, 1, 2, 3]
    for thread in threads:
        thread.join()
    for handle in begun:
        handle.close()


def test_a_long_list_lets_others_in_between(model: Model) -> None:
    """A list has one of its prompts in line at a time, so that a single prompt is not behind all of them."""
    order: list[str] = []
    with model.open([10, 4]), ThreadPoolExecutor(1) as pool:
        single = None

        def note(i: int, reply: Any) -> None:
            nonlocal single
            order.append(f"list {i}")
            if single is None:
                single = pool.submit(lambda: (model.generate([12, 4], max_tokens=3, **PLAIN), order.append("single")))
                in_line(model, 1 + 1)  # behind the list's second prompt

        model.generate([[20 + i, 4] for i in range(6)], max_tokens=3, **PLAIN, on_result=note)
        single.result(60)
    assert order.index("single") <= 3 and [o for o in order if o != "single"] == [f"list {i}" for i in range(6)]


def test_who_waits_is_told_when_the_model_is_closed() -> None:
    with mock_model(slots=2) as model, ThreadPoolExecutor(3) as pool:
        handle = model.open([10, 4])
        running = pool.submit(model.generate, [13, 4], max_tokens=1900, **PLAIN)
        until(lambda: len(model._slots) == 2)
        waiting = [pool.submit(model.generate, [12, 4]), pool.submit(model.open, [12, 4], wait=True)]
        in_line(model, 2)
        model.close()
        for call in (running, *waiting):
            with pytest.raises(RuntimeError, match="closed"):
                call.result(60)
        handle.close()
