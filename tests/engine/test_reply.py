"""What readers see of a reply is of one moment, and looking costs what is new, however long the reply is."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from tensorfold import SlotHandle
from tensorfold.engine import reply
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.engine.slot import Outcome, Slot
from tests.engine.mock import Bytes, params

LONG = 30_000


class Counted:
    """SHA-256 that counts the bytes it is fed."""

    fed = 0

    def __init__(self, real=None):
        self._real = real or hashlib.sha256()

    def update(self, data: bytes) -> None:
        Counted.fed += len(data)
        self._real.update(data)

    def copy(self) -> Counted:
        return Counted(self._real.copy())

    def hexdigest(self) -> str:
        return self._real.hexdigest()


def say(slot: Slot, *tokens: int, finite: bool = True) -> None:
    """A round that draws these tokens."""
    slot.accept(1, 0, Outcome(tokens, finite, [TokenLogprobs(t, -1.0, ()) for t in tokens]))


@pytest.fixture
def slot():
    return Slot([5, 6], params(10**6, logprobs=0), Bytes(), 0)


@pytest.fixture
def handle(slot):
    made = SlotHandle(None, slot)
    yield made
    made._open = False  # there is no model to tell


def test_a_step_of_a_long_reply_costs_what_is_new(handle, slot, monkeypatch):
    """Bytes that are allocated and hashed to read one more token do not grow with the tokens before it."""
    monkeypatch.setattr(reply, "hashlib", Counted)
    monkeypatch.setattr(Counted, "sha256", Counted, raising=False)
    slot.begin(2, slot.params)
    for _ in range(LONG // 50):
        say(slot, *[100] * 50)
    handle.read()
    tracemalloc.start()
    try:
        Counted.fed = 0
        say(slot, 101)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        piece, stats = handle.read(), handle.stats
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (piece.text, piece.tokens, [e.token for e in piece.logprobs]) == ("b", [101], [101])
    assert stats.generated_tokens == LONG + 1 and Counted.fed == 4
    assert taken < LONG, "something as long as the reply was copied"
    assert stats.token_sha == hashlib.sha256(np.array(handle.tokens, "<u4").tobytes()).hexdigest()


def test_nothing_of_a_round_shows_before_its_end(handle, slot, monkeypatch):
    """A reader between two tokens of a round, or between the last token and the reason, sees the round before."""
    seen = []
    add = Bytes.add

    def looked_at(self, token: int) -> str:
        seen.append((handle.tokens, handle.text, len(handle.logprobs), handle.done, handle.read().tokens))
        return add(self, token)

    monkeypatch.setattr(Bytes, "add", looked_at)
    say(slot, 100, 101)
    say(slot, 102, Bytes.eos_id)
    nothing, first = ([], "", 0, False, []), ([100, 101], "ab", 2, False)
    assert seen == [nothing, nothing, (*first, [100, 101]), (*first, [])]
    last = handle.read()
    assert (last.text, last.tokens, last.finish_reason) == ("c", [102, Bytes.eos_id], "stop")
    assert (handle.text, handle.tokens, handle.done) == ("abc", [100, 101, 102, Bytes.eos_id], True)


def test_a_slot_that_goes_on_is_read_from_its_new_reply(handle, slot):
    say(slot, 100, Bytes.eos_id)
    handle.read()
    slot.ids.append(7)
    slot.begin(len(slot.ids), slot.params)
    say(slot, 101)
    assert (handle.read().tokens, handle.text) == ([101], "b")


def test_a_reply_that_goes_on_takes_back_what_its_end_alone_let_out(handle, slot):
    """Text held back for a stop string and half a character are shown at an end; read as a stream they come once."""
    euro = [3 + b for b in "\u20ac".encode()]
    slot.begin(2, params(10**6, stop=("bcd",)))
    say(slot, 100, 101, 102)  # a, and what may become bcd
    assert handle.read().text == handle.text == "a"
    slot.finish("cancelled")
    assert handle.text == "abc" and handle.read().text == "bc"
    slot.go_on(slot.params, 0)
    assert (handle.text, handle.done, handle.read().text) == ("a", False, "")
    say(slot, 101, *euro[:2])
    assert handle.text == "abc" and handle.read().text == ""
    slot.finish("length")
    assert handle.text == "abcb\ufffd" and handle.read().text == "b\ufffd"
    slot.go_on(slot.params, 0)
    say(slot, euro[2], 101, 102, 103)
    assert handle.read().text == "b\u20ac"
    assert (handle.text, handle.finish_reason, handle.tokens[-1]) == ("abcb\u20ac", "stop", 103)


def test_the_clocks_of_a_reply_stand_still_between_an_end_and_going_on(handle, slot, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(reply.time, "perf_counter", lambda: now[0])
    slot.begin(2, slot.params)
    for second in (103.0, 104.0, 105.0):
        now[0] = second
        say(slot, 100)
    slot.finish("length")
    assert (handle.stats.ttft_s, handle.stats.generation_tps) == (3.0, 1.0)
    now[0] = 1000.0
    slot.go_on(slot.params, 0)
    assert (handle.stats.ttft_s, handle.stats.generation_tps) == (3.0, 1.0)
    now[0] = 1001.0
    say(slot, 100)
    assert (handle.stats.ttft_s, handle.stats.generation_tps, handle.stats.generated_tokens) == (3.0, 1.0, 4)
