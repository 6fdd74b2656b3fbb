"""Kept beginnings: reused wherever the prompts part, equal to fresh, within a byte budget."""

from __future__ import annotations

import pytest

from tensorfold import CapacityError, Model
from tests.engine.kit import CALM, differences, ids, run, sampling, state
from tests.engine.mock import check_state, finish, greedy, make, params

PROMPT = ids(60, 80)


@pytest.fixture(scope="module")
def keeping():
    with Model.load(CALM, draft_policy="fixed", snapshot_tokens=64) as model:
        yield model


def test_a_prompt_resumes_at_every_split_of_sixty():
    """Case 30: kept to k tokens, the whole prompt computes the rest alone and has the rows and tokens that its ids
    say."""
    for split in range(1, 60):
        engine = make(slots=2, prefix_bytes=2**24)
        engine.prefill(PROMPT[:split])
        finish(engine)
        slot = engine.open(PROMPT, params(9), split % 6)
        assert slot.stats.reused_tokens == split
        finish(engine)
        check_state(engine, slot)
        assert slot.tokens == greedy(PROMPT, 9)


def test_weights_resume_at_a_sample_of_splits(keeping, alone):
    """Case 30: on both sides of the window, of an open pair, of a chunk;
    rows and tokens are those of a fresh prompt."""
    want = alone(PROMPT, 3, **sampling(0))
    fresh = alone.model.open(PROMPT, max_tokens=3, draft=False, **sampling(0))
    run(alone.model, fresh)
    for split in (1, 2, 7, 15, 16, 17, 32, 33, 50, 59):
        keeping.remember(PROMPT[:split])
        with keeping.open(PROMPT, max_tokens=3, max_drafts=split % 3, **sampling(0)) as handle:
            assert handle.stats.reused_tokens == split
            run(keeping, handle)
            assert handle.tokens == want, split
            assert differences(state(handle), state(fresh)) == [], split


def test_sessions_that_share_a_beginning_equal_fresh_ones(keeping, alone):
    """Case 32: each session's reply is its own, kept beginnings are found without being asked for."""
    system = ids(140, 81)
    for session in range(4):
        prompt = system + ids(5 + session, 82 + session)
        reply = keeping.generate(prompt, max_tokens=6, **sampling(session % 2))
        assert reply.stats.reused_tokens == (128 if session else 0)
        assert reply.tokens == alone(prompt, 6, **sampling(session % 2))


def test_a_prompt_that_parts_early_from_a_long_reply_equals_fresh(keeping, alone):
    """Case 30: 150 tokens and a reply are kept, the next prompt shares 20 of them,
    past which the window has moved on."""
    long = ids(150, 90)
    first = keeping.generate(long, max_tokens=30, seed=0)
    parted = long[:20] + ids(30, 91)
    reply = keeping.generate(parted, max_tokens=8, seed=0)
    assert reply.stats.reused_tokens == 0 and reply.tokens == alone(parted, 8, **sampling(0))
    follow = [*long, *first.tokens, *ids(3, 92)]
    reply = keeping.generate(follow, max_tokens=8, seed=0)
    assert reply.stats.reused_tokens == len(long) + 29  # all but the reply's last token was in the caches
    assert reply.tokens == alone(follow, 8, **sampling(0))


def test_a_kept_sampled_reply_is_not_replayed(keeping, alone):
    """Case 35: the same prompt under another seed."""
    prompt = ids(40, 93)
    for seed in (1, 2, 1):
        reply = keeping.generate(prompt, max_tokens=10, temperature=1.0, seed=seed)
        assert reply.tokens == alone(prompt, 10, temperature=1.0, seed=seed)


def test_the_budget_is_kept_and_the_least_recently_used_goes_first(keeping):
    store = keeping._engine.prefixes
    keeping._life.worker.run(store.clear)
    budget = store.budget
    try:
        beginnings = [ids(20, 94 + i) for i in range(4)]
        keeping.remember(beginnings[0])
        store.budget = 3 * store.nbytes
        keeping.remember(beginnings[1]), keeping.remember(beginnings[2])
        with keeping.open(beginnings[0] + [5], max_tokens=1) as handle:  # used again: now the second is the oldest
            assert handle.stats.reused_tokens == 20
        keeping.remember(beginnings[3])
        assert [store.has(b) for b in beginnings] == [True, False, True, True]
        assert len(store) == 3 and store.nbytes <= store.budget
        store.budget = 10
        keeping.remember(ids(20, 99))
        assert len(store) == 3
    finally:
        store.budget = budget


def test_remember_takes_what_the_context_holds_and_no_more():
    with Model.load(CALM, max_context=70, draft=False) as model:
        model.remember(ids(70, 95))
        with pytest.raises(CapacityError, match="71 tokens do not fit the context of 70"):
            model.remember(ids(71, 96))


def test_nothing_is_kept_without_a_budget(calm):
    calm.remember(PROMPT)
    with calm.open([*PROMPT, 5], max_tokens=1) as handle:
        assert handle.stats.reused_tokens == 0


def test_kept_beginnings_come_at_the_stated_distance():
    """snapshot_tokens is rounded up to whole prompt chunks."""
    with Model.load(CALM, snapshot_tokens=100, draft=False) as model:
        prompt = ids(200, 97)
        model.generate(prompt, max_tokens=1)
        with model.open(prompt[:199] + [9, 9], max_tokens=1) as handle:
            assert handle.stats.reused_tokens == 128
