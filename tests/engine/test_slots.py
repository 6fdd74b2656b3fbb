"""Slots as callers hold them: opened, stepped, queued, dropped; capacity is refused at the call."""

from __future__ import annotations

import gc
import hashlib
import time
from functools import partial
from itertools import islice

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold import CapacityError, Model
from tests.engine.kit import CALM, ids, run, sampling


@pytest.fixture(scope="module")
def small():
    with Model.load(CALM, max_slots=3, max_context=60, draft_policy="fixed", prefix_bytes=0) as model:
        yield model


def test_twenty_prompts_queue_for_three_slots(small, calm):
    """In order, each as beside others, counters its own."""
    prompts = [ids(3 + i % 9, 130 + i) for i in range(20)]  # more than the slots of either model
    seen = []

    def progress(*counts):
        seen.append(counts)

    replies = small.generate(prompts, max_tokens=4, seed=5, temperature=1.0, prompt_progress_callback=progress)
    want = calm.generate(prompts, max_tokens=4, seed=5, temperature=1.0, draft=False)
    assert [r.tokens for r in replies] == [r.tokens for r in want]
    assert [r.stats.prompt_tokens for r in replies] == [len(p) for p in prompts]
    assert seen[-1] == (sum(map(len, prompts)),) * 2 and not small._engine.slots


def test_more_open_slots_than_there_are_is_an_error_and_closing_frees(small):
    """Also dropped handles and streams that are thrown away free their slots."""
    handles = [small.open(ids(3), max_tokens=2) for _ in range(3)]
    for refused in (lambda: small.open([3], max_tokens=2), handles[0].fork, lambda: small.stream([3], max_tokens=2)):
        with pytest.raises(CapacityError, match="all 3 slots are open"):
            refused()
    handles[0].close()
    handles[0].close()
    pieces = small.stream(ids(3), max_tokens=5)
    next(pieces)
    del pieces, handles
    gc.collect()
    assert small._engine.free == 3
    with pytest.raises(ValueError, match="closed"):
        with small.open(ids(3), max_tokens=2) as handle:
            pass
        handle.fork()


@pytest.mark.parametrize("end", ["close", "drop"])
@pytest.mark.parametrize("pieces", [0, 1])
def test_a_stream_that_ends_early_frees_its_slot_at_once(calm, end, pieces):
    """Also before its first piece, and without a round or another call."""
    for begin in (calm.stream, partial(tensorfold.stream_generate, calm)):
        made = begin(ids(3), max_tokens=5)
        assert len(list(islice(made, pieces))) == pieces and repr(calm).endswith(" 1 slots open)")
        if end == "close":
            made.close()
        else:
            del made
        assert repr(calm).endswith(" 0 slots open)")


def test_generate_waits_for_open_slots_and_says_when_none_will_come(small):
    handles = [small.open(ids(3, i), max_tokens=3 + i) for i in range(3)]
    with pytest.raises(CapacityError, match="held by an open handle"):
        small.generate(ids(4), max_tokens=2)
    assert not any(h.tokens for h in handles), "who waits carried on what others hold"
    handles.pop().close()
    assert len(small.generate([ids(4), ids(5)], max_tokens=2, logit_bias={1: -np.inf})[1].tokens) == 2
    for handle in handles:
        handle.close()


def test_capacity_is_refused_at_the_call(small):
    """Cases 66, 72: before the first piece, naming what would fit; nothing is opened."""
    for call in (small.generate, small.stream, small.open):
        with pytest.raises(CapacityError, match="max_tokens can be at most 10"):
            call(ids(50), max_tokens=11)
        with pytest.raises(CapacityError, match="shorten the prompt"):
            call(ids(60), max_tokens=1)
    with pytest.raises(CapacityError):
        small.generate([ids(3), ids(50)], max_tokens=11)
    assert not small._engine.slots
    with small.open(ids(50), max_tokens=10, logit_bias={1: -np.inf}) as handle:
        run(small, handle)
        assert len(handle.tokens) == 10
        with pytest.raises(CapacityError):
            handle.extend([4], max_tokens=1)
        assert len(handle.tokens) == 10 and handle.finish_reason == "length"


def test_unknown_and_wrong_keywords_compute_nothing(small):
    """Cases 55, 58."""
    for call in (small.generate, small.stream, small.open):
        with pytest.raises(TypeError, match="max_token"):
            call(ids(3), max_token=3)
        wrong = (("temperature", np.nan), ("max_tokens", True), ("max_tokens", 1.5), ("seed", "a"), ("max_drafts", 6))
        for name, value in wrong:
            with pytest.raises((TypeError, ValueError), match=name):
                call(ids(3), **{name: value})
    assert not small._engine.slots


def test_an_unfinished_slot_is_not_extended(small):
    with small.open(ids(3), max_tokens=5) as handle, pytest.raises(ValueError, match="not finished"):
        handle.extend([4])


def test_streamed_pieces_are_the_reply(small):
    """Cases 49, 52: text and tokens of the pieces concatenate; the last one says why it ended."""
    whole = small.generate("one two", max_tokens=20, seed=0)
    stop = whole.text[5:8]
    for options in ({}, {"stop": stop}):
        pieces = list(small.stream("one two", max_tokens=20, seed=0, **options))
        reply = small.generate("one two", max_tokens=20, seed=0, draft=False, **options)
        assert "".join(p.text for p in pieces) == reply.text
        assert [t for p in pieces for t in p.tokens] == reply.tokens
        assert [p.finish_reason for p in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1].finish_reason == reply.finish_reason and pieces[-1].stats.token_sha == reply.stats.token_sha
    assert small._engine.free == 3


def test_seeds_part_and_repeat(calm):
    """Cases 11, 56: twenty seeds, seed 0 among them, whatever else draws random numbers."""
    prompt = ids(9, 140)
    first = calm.generate([prompt] * 20, max_tokens=5, temperature=1.0, seed=list(range(20)))
    mx.random.uniform(shape=(100,))
    again = calm.generate([prompt] * 2, max_tokens=5, temperature=1.0, seed=[0, 13], draft=False)
    assert len({tuple(r.tokens) for r in first}) > 1
    assert [r.tokens for r in again] == [first[0].tokens, first[13].tokens]
    drawn = calm.generate(prompt, n=2, max_tokens=2, temperature=1.0)
    assert drawn[0].seed != drawn[1].seed


def test_stats_are_those_of_the_reply(small):
    """Rates stop with the last token, a fork's are its own, the hash is of the ids as little-endian words."""
    handle = small.open(ids(20, 141), max_tokens=12, **sampling(1))
    while len(handle.tokens) < 6:
        small.step()
    fork = handle.fork()
    run(small, handle, fork)
    before = handle.stats.generation_tps
    time.sleep(0.05)
    assert handle.stats.generation_tps == before
    assert fork.stats.reused_tokens >= 20 and fork.stats.prompt_tps >= 0
    assert handle.stats.token_sha == hashlib.sha256(np.asarray(handle.tokens, "<u4").tobytes()).hexdigest()
    assert handle.stats.generated_tokens == len(handle.tokens) and handle.stats.prompt_tokens == 20
    assert handle.stats.forwards == handle.stats.rounds < 13
    handle.close(), fork.close()
