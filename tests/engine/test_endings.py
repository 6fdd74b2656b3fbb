"""A reply that ends inside accepted drafts is the reply of an undrafted slot: same tokens, same text, same state."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold.engine.lanes import Commit
from tensorfold.engine.slot import NumericError
from tests.engine.mock import Bytes, MockDrafter, check_state, finish, greedy, make, params

PROMPT = [7 + i % 40 for i in range(29)]
STREAM = greedy(PROMPT, 40)
TEXT = "".join(chr(t - 3) for t in STREAM)
OTHER = [9, 4, 60]


def beside(engine, width):
    """Another slot of the same rounds, and the first one."""
    other = engine.open(OTHER, params(30), 5)
    while len(other.tokens) < 2:
        engine.step()
    return other, lambda **more: engine.open(PROMPT, params(40, **more), width)


def settle(engine, slot, other):
    finish(engine)
    check_state(engine, slot)
    check_state(engine, other)
    assert other.tokens == greedy(OTHER, 30) and other.finish_reason == "length"
    assert slot.committed == len(slot.ids) - 1
    engine.close(slot)
    engine.lanes.network.bad = None
    again = engine.open(PROMPT[:20], params(12), 5)
    finish(engine)
    assert again.tokens == greedy(PROMPT[:20], 12)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("width", [0, 2, 5])
def test_a_stop_string_inside_a_round_cuts_text_tokens_and_state(width, length, monkeypatch):
    """Case 52: at every token of the round, over several tokens; nothing of it is shown, none behind it is kept."""
    rewinds, real = [], Commit.rewind
    monkeypatch.setattr(Commit, "rewind", lambda *a: (rewinds.append(1), real(*a)))
    for last in range(8, 15):
        stop = TEXT[last - length + 1 : last + 1]
        at = TEXT.find(stop)
        engine = make(drafter=MockDrafter(0))
        other, start = beside(engine, width)
        slot = start(stop=(stop,))
        shown = ""
        while engine.step():
            assert slot.text.startswith(shown) and TEXT[:at].startswith(slot.text)
            shown = slot.text
        assert (slot.text, slot.finish_reason, slot.tokens) == (TEXT[:at], "stop", STREAM[: at + length])
        settle(engine, slot, other)
    assert bool(rewinds) == (width > 0)


@pytest.mark.parametrize("wrong", [0, 3])
@pytest.mark.parametrize("width", [0, 3, 5])
def test_an_eos_inside_a_round_ends_the_reply(width, wrong, monkeypatch):
    """Case 52: drafted too, it is decided on the device: nothing behind it is kept, so nothing is taken back."""
    monkeypatch.setattr(Commit, "rewind", None)
    for i, token in enumerate(sorted(set(STREAM), key=STREAM.index)[3:10]):
        eos = Bytes.eos_ids[i % 2]  # each of them ends it
        engine = make(drafter=MockDrafter(wrong, (token, eos)), eos_after=token, eos=eos)
        other, start = beside(engine, width)
        if token in greedy(OTHER, 30):
            other.params = params(1)
            engine.cancel(other)
        slot = start()
        finish(engine)
        at = STREAM.index(token)
        assert slot.tokens == [*STREAM[: at + 1], eos] and slot.finish_reason == "stop"
        assert slot.committed == len(slot.ids) - 1
        check_state(engine, slot)
        check_state(engine, other)


@pytest.mark.parametrize("width", [0, 2, 5])
def test_a_stop_id_inside_a_round_ends_the_reply_and_is_no_text(width, monkeypatch):
    """It and what would come behind it are never drafted, so no row is spent on what cannot be kept."""
    monkeypatch.setattr(Commit, "rewind", None)
    for token in sorted(set(STREAM), key=STREAM.index)[3:10]:
        engine = make()
        other, start = beside(engine, width)
        slot, at = start(stop_token_ids=(7, token)), STREAM.index(token)
        settle(engine, slot, other)
        assert (slot.tokens, slot.text, slot.finish_reason) == (STREAM[: at + 1], TEXT[:at], "stop")
        assert slot.stats.accepted == slot.stats.drafted and (sum(slot.stats.drafted) > 0) == (width > 0)


@pytest.mark.parametrize("width", [0, 2, 5])
def test_an_ignored_eos_is_a_token_like_any_other(width):
    made = []
    for drafts, ignore in ((0, True), (width, True), (width, False)):
        engine = make(drafter=MockDrafter(0, (STREAM[4], Bytes.eos_id)), eos_after=STREAM[4])
        slot = engine.open(PROMPT, params(30, ignore_eos=ignore), drafts)
        finish(engine)
        check_state(engine, slot)
        made.append((slot.tokens, slot.text, slot.finish_reason))
    assert made[0] == made[1] and len(made[0][0]) == 30 and made[0][2] == "length"
    assert made[2] == (made[0][0][:6], TEXT[:5], "stop") and made[2][0][-1] == Bytes.eos_id


@pytest.mark.parametrize("width", [0, 2, 5])
def test_min_tokens_come_before_any_end(width):
    """What ends a reply is not drawn before, whether drafted or not; a stop string is passed over, not cut."""
    ends, least = tuple(sorted(set(STREAM[:12]))), 9
    made = []
    for drafts in (0, width):
        engine = make()
        slot = engine.open(PROMPT, params(30, stop_token_ids=ends, min_tokens=least), drafts)
        finish(engine)
        check_state(engine, slot)
        made.append(slot.tokens)
        assert slot.stats.accepted == slot.stats.drafted  # the drafter is kept from the same tokens
    assert made[0] == made[1] and not set(made[0][:least]) & set(ends)
    assert made[0][-1] in ends and least < len(made[0]) < 30
    for stop in (TEXT[7:9], TEXT[8:10], TEXT[9]):  # the first is complete one token too soon
        engine = make()
        slot = engine.open(PROMPT, params(30, stop=(stop,), min_tokens=least), width)
        finish(engine)
        check_state(engine, slot)
        at = TEXT.find(stop, least + 1 - len(stop))  # the first that a later token completes
        end = at + len(stop) if at >= 0 else 30
        assert (slot.text, slot.tokens) == (TEXT[: at if at >= 0 else 30], STREAM[:end])


@pytest.mark.parametrize("width", [0, 3, 5])
def test_logits_that_are_not_finite_inside_a_window_end_that_slot_alone(width):
    for token in [t for t in sorted(set(STREAM), key=STREAM.index)[3:] if t not in greedy(OTHER, 30)][:4]:
        engine = make(drafter=MockDrafter(0, (token, 0)), bad=token)  # 0 is what a row of NaN picks
        other, start = beside(engine, width)
        slot = start()
        while not slot.done:
            engine.step()
        at = STREAM.index(token)
        assert slot.tokens == STREAM[: at + 1] and slot.finish_reason == "error"
        assert isinstance(slot.error, NumericError)
        assert f"position {len(PROMPT) + at} " in str(slot.error) and "layer 4" in str(slot.error)
        for forbidden in (lambda e, s: e.fork(s, s.params), lambda e, s: e.extend(s, [4], s.params, 0)):
            with pytest.raises(ValueError, match="failed"):
                forbidden(engine, slot)
        settle(engine, slot, other)


@pytest.mark.parametrize("length", [1, 5, 16, 17, 24, 25, 47, 48, 49, 60])
def test_logits_that_are_not_finite_at_a_prompts_end_leave_every_earlier_row_right(length):
    """A chunk wider than the window takes its last row back out of a ring it went round."""
    engine = make(bad=77)
    slot = engine.open([*range(10, 10 + length - 1), 77], params(5), 5)
    finish(engine)
    assert slot.finish_reason == "error" and slot.tokens == [] and slot.committed == length - 1
    check_state(engine, slot)


@pytest.mark.parametrize("width", [0, 2, 5])
def test_max_tokens_is_exact_and_a_cancelled_window_leaves_no_trace(width):
    engine = make(drafter=MockDrafter(4))
    for count in (1, 2, 3, 6, 7):
        slot = engine.open(PROMPT, params(count), width)
        finish(engine)
        assert slot.tokens == STREAM[:count] and slot.finish_reason == "length"
        check_state(engine, slot)
        engine.close(slot)
    for rounds in (1, 2, 4, 6):
        slot = engine.open(PROMPT, params(40), width)
        for _ in range(rounds):
            engine.step()
        engine.cancel(slot)
        assert slot.finish_reason == "cancelled" and slot.tokens == STREAM[: len(slot.tokens)] and not engine.step()
        check_state(engine, slot)
        engine.extend(slot, [50, 51], params(9), width)
        finish(engine)
        assert slot.tokens == greedy(slot.ids[:-9], 9)
        engine.close(slot)


def test_a_round_that_breaks_ends_its_slots_and_the_next_request_is_untouched():
    engine = make()
    slot = engine.open(PROMPT, params(40), 5)
    engine.step(), engine.step(), engine.step()
    ended = engine.open(OTHER, params(2), 0)
    while not ended.done:
        engine.step()
    real, engine.lanes.drafter.propose = engine.lanes.drafter.propose, None
    with pytest.raises(TypeError):
        engine.step()
    assert slot.finish_reason == "error" and isinstance(slot.error, TypeError)
    engine.lanes.drafter.propose = real
    check_state(engine, ended)
    engine.close(slot)
    engine.extend(ended, [4], params(5), 5)
    again = engine.open(PROMPT, params(20), 5)
    finish(engine)
    assert again.tokens == STREAM[:20] and ended.tokens == greedy([*OTHER, *greedy(OTHER, 2), 4], 5)
    assert np.array_equal(again.stats.accepted, again.stats.drafted)
