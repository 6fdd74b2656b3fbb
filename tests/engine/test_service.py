"""What a server needs of a call: to end it from elsewhere, results as they come, and failures that stay their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tensorfold import Generation, Model, NumericError
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.slot import Slot
from tests.engine.mock import greedy
from tests.engine.mock_model import mock_model

PROMPTS = [[10 + i, 4] for i in range(6)]
LONG = 1900


@pytest.fixture
def model() -> Iterator[Model]:
    """Two slots. Nothing is open, and nobody waits, afterwards."""
    with mock_model(slots=2) as model:
        yield model
        assert model._engine.free == 2 and not model._engine._line


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Prompts that begin with these ids fail in their first round."""
    first: set[int] = set()
    run = Lanes.round

    def failing(self: Lanes, slots: Any) -> Any:
        ran = run(self, slots)
        for slot in [s for s in slots if s.ids[0] in first and not s.done]:
            slot.fail(NumericError("planted"))
        return ran

    monkeypatch.setattr(Lanes, "round", failing)
    return first


def after(tokens: int, event: threading.Event) -> Any:
    """Sets the event once a reply that is looked at by it has so many tokens."""

    def look(model: Model) -> None:
        while not any(len(s.tokens) >= tokens for s in list(model._slots)):
            threading.Event().wait(0.005)
        event.set()

    return look


def test_a_generate_is_cancelled_from_another_thread(model: Model) -> None:
    """With what it has; those that had no slot yet end too, with nothing; and the model goes on."""
    stop, told = threading.Event(), list[int]()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(after(3, stop), model)
        replies = model.generate(
            PROMPTS, max_tokens=LONG, cancel=stop, on_result=lambda i, reply: told.append(i), logprobs=0
        )
    assert [r.finish_reason for r in replies] == ["cancelled"] * 6 and sorted(told) == list(range(6))
    assert 3 <= len(replies[0].tokens) < LONG and replies[0].tokens == greedy(PROMPTS[0], len(replies[0].tokens))
    assert all((r.text, r.tokens, r.logprobs, r.stats.prompt_tokens) == ("", [], [], 2) for r in replies[2:])
    assert model.generate(PROMPTS[0], max_tokens=9).tokens == greedy(PROMPTS[0], 9)


def test_a_stream_is_cancelled_from_another_thread(model: Model) -> None:
    stop = threading.Event()
    stream = model.stream(PROMPTS[0], max_tokens=LONG, cancel=stop)
    assert next(stream).finish_reason is None
    stop.set()
    assert [p.finish_reason for p in stream] == ["cancelled"]


def test_a_wait_is_cancelled(model: Model) -> None:
    """Also one whose event was set before."""
    handles = [model.open(p) for p in PROMPTS[:2]]
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(model.generate, PROMPTS[2], wait=True, cancel=stop),
            pool.submit(lambda: list(model.stream(PROMPTS[2], wait=True, cancel=stop))[-1]),
        ]
        threading.Event().wait(0.1)
        assert not any(w.done() for w in waiting)
        stop.set()
        assert [w.result(60).finish_reason for w in waiting] == ["cancelled"] * 2
    assert model.generate(PROMPTS[2], cancel=stop).finish_reason == "cancelled"
    for handle in handles:
        handle.close()


def test_a_cancelled_task_ends_its_reply(model: Model) -> None:
    async def ask(prompt: list[int]) -> Generation:
        stop = threading.Event()
        try:
            return await asyncio.to_thread(model.generate, prompt, max_tokens=LONG, cancel=stop)
        finally:
            stop.set()

    async def impatient() -> None:
        task = asyncio.create_task(ask(PROMPTS[0]))
        while not any(s.tokens for s in list(model._slots)):
            await asyncio.sleep(0.005)
        cut.extend(model._slots)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    cut: list[Slot] = []
    asyncio.run(impatient())  # waits for its threads
    assert [slot.finish_reason for slot in cut] == ["cancelled"] and model._engine.free == 2


def test_results_come_as_they_end(model: Model) -> None:
    told: list[tuple[int, Generation]] = []
    replies = model.generate(
        PROMPTS[:3], max_tokens=8, stop=None, on_result=lambda *result: told.append(result), seed=0
    )
    assert sorted(i for i, _ in told) == [0, 1, 2] and all(replies[i] is reply for i, reply in told)
    assert told[-1][0] == 2, "the third prompt waits for a slot of the first two"
    one: list[int] = []
    model.generate(PROMPTS[0], max_tokens=2, on_result=lambda i, reply: one.append(i))
    assert one == [0]


def test_a_reply_that_fails_does_not_lose_the_others(model: Model, fails: set[int]) -> None:
    fails.add(PROMPTS[1][0])
    told: list[int] = []
    replies = model.generate(PROMPTS, max_tokens=5, on_result=lambda i, reply: told.append(i))
    assert [r.finish_reason for r in replies] == ["length", "error", *["length"] * 4] and sorted(told) == [*range(6)]
    assert isinstance(replies[1].error, NumericError)
    assert [r.tokens for i, r in enumerate(replies) if i != 1] == [greedy(p, 5) for p in PROMPTS if p is not PROMPTS[1]]
    with pytest.raises(NumericError, match="planted"):
        model.generate(PROMPTS[1], max_tokens=5)
    with pytest.raises(NumericError, match="planted"):
        list(model.stream(PROMPTS[1], max_tokens=5))


def test_a_round_that_breaks_ends_what_was_in_it_and_the_rest_goes_on(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = Lanes.round, [1]

    def breaks_once(self: Lanes, slots: Any) -> Any:
        if any(s.tokens for s in slots) and left:
            left.pop()
            raise MemoryError("planted")
        return run(self, slots)

    monkeypatch.setattr(Lanes, "round", breaks_once)
    replies = model.generate(PROMPTS, max_tokens=5)
    assert [r.finish_reason for r in replies] == ["error"] * 2 + ["length"] * 4
    assert all(isinstance(r.error, MemoryError) for r in replies[:2])


def test_a_callback_that_fails_ends_the_call(model: Model) -> None:
    def fail(i: int, reply: Generation) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.generate(PROMPTS, max_tokens=3, on_result=fail)


def test_a_callback_may_use_the_model(model: Model) -> None:
    """Also where all other slots are the list's own, which then go on meanwhile."""
    inner: list[Any] = []
    replies = model.generate(
        PROMPTS[:3], max_tokens=4, on_result=lambda i, r: inner.append(model.generate(PROMPTS[5], max_tokens=3))
    )
    assert [len(r.tokens) for r in replies] == [4] * 3 and [len(r.tokens) for r in inner] == [3] * 3
