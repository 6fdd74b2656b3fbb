"""State law: what a later token can read is bit for bit the same, whatever was drafted, cancelled or cut."""

from __future__ import annotations

import pytest

from tensorfold.engine.lanes import Commit
from tests.engine.kit import differences, ids, run, sampling, state

PROMPT = ids(21, 3)
TOKENS = 44  # past twice the window


@pytest.fixture(scope="module", params=[0, 1], ids=["greedy", "sampled"])
def step_by_step(request, calm):
    """The states of an undrafted slot, one token a round, by committed length."""
    mode = sampling(request.param)
    with calm.open(PROMPT, max_tokens=TOKENS, draft=False, **mode) as handle:
        states = {}
        while calm.step():
            states[handle._slot.committed] = state(handle)
        states[handle._slot.committed] = state(handle)
        return mode, states, handle.tokens, handle.text


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_every_verify_round_leaves_the_state_of_single_steps(calm, step_by_step, width):
    """Case 2: rings, open pairs, compressed rows and keys after each round of accepted and rejected drafts."""
    mode, states, tokens, _ = step_by_step
    handle = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=width, **mode)
    while not handle.done:
        calm.step()
        assert differences(state(handle), states[handle._slot.committed]) == []
    assert handle.tokens == tokens
    accepted, drafted = sum(handle.stats.accepted), sum(handle.stats.drafted)
    assert 0 < accepted < drafted


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_cancel_leaves_the_state_of_a_slot_never_drafted(calm, step_by_step, rounds):
    mode, states, tokens, _ = step_by_step
    handle = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=5, **mode)
    for _ in range(rounds):
        calm.step()
    handle.cancel()
    assert handle.finish_reason == "cancelled" and handle.tokens == tokens[: len(handle.tokens)]
    assert differences(state(handle), states[handle._slot.committed]) == []


def test_a_stop_string_inside_kept_rows_leaves_the_state_of_a_slot_never_drafted(calm, step_by_step, monkeypatch):
    """Case 52 with weights: same tokens, same text, same rows; at least one of the cuts falls inside kept rows."""
    mode, states, tokens, text = step_by_step
    rewinds, real = [], Commit.rewind
    monkeypatch.setattr(Commit, "rewind", lambda *a: (rewinds.append(1), real(*a)))
    for at in range(6, 30, 3):
        stop = text[at : at + 4]
        handle = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=5, stop=stop, **mode)
        run(calm, handle)
        assert handle.text == text[: text.find(stop)] and handle.finish_reason == "stop"
        assert handle.tokens == tokens[: len(handle.tokens)]
        assert differences(state(handle), states[handle._slot.committed]) == []
        handle.close()
        if rewinds:
            break
    assert rewinds


def test_a_trained_slot_keeps_the_state_too(trained, alone_trained):
    prompt = ids(40, 5)
    plain = trained.open(prompt, max_tokens=14, draft=False, seed=0)
    drafted = trained.open(prompt, max_tokens=14, max_drafts=5, seed=0)
    run(trained, plain, drafted)
    assert plain.tokens == drafted.tokens and differences(state(plain), state(drafted)) == []
