"""Batch law: a slot beside others that join and leave gives the tokens it gives alone."""

from __future__ import annotations

from tests.engine.kit import golden_prompts, ids, run, sampling

# window 16, top-k 8 rows of 1 and 2 tokens, candidates 12 rows, prompt chunk 64: below, on and above each
LENGTHS = (65, 64, 63, 33, 32, 31, 25, 24, 23, 17, 16, 15, 13, 12, 9, 1)


def test_one_to_sixteen_slots_join_and_leave(calm, alone):
    """Cases 6, 20, 21, 28: a slot joins every round, so that all counts of 1 to 16 occur going up and going down."""
    prompts = [ids(n, 20 + n) for n in LENGTHS]
    modes = [sampling(i % 2) for i in range(16)]
    tokens = [24 - i for i in range(16)]  # who joins last leaves first
    want = [alone(p, n, **m) for p, n, m in zip(prompts, tokens, modes)]
    counts, build = [], calm._engine.lanes.planner.build
    calm._engine.lanes.planner.build = lambda windows, *a: counts.append(len(windows)) or build(windows, *a)
    try:
        handles = []
        for i in range(16):
            drafts = i % 2 if i >= 12 else 0
            handles.append(calm.open(prompts[i], max_tokens=tokens[i], max_drafts=drafts, **modes[i]))
            calm.step()
        run(calm, *handles)
    finally:
        calm._engine.lanes.planner.build = build
    assert [h.tokens for h in handles] == want
    assert set(counts) >= set(range(1, 17))


def test_a_slot_that_leaves_and_one_that_takes_its_place_disturb_nobody(calm, alone):
    """Cases 20, 28: cancelled, closed and dropped neighbours; the place is used again at once."""
    stays = calm.open(ids(30, 40), max_tokens=30, max_drafts=5, **sampling(1))
    for round_ in range(6):
        other = calm.open(ids(17 + round_, 41), max_tokens=9, max_drafts=3, **sampling(2))
        calm.step(), calm.step(), calm.step()
        if round_ % 3 == 0:
            other.cancel()
        if round_ % 3 == 1:
            other.close()
        del other
    run(calm, stays)
    want = stays.tokens
    stays.close()
    assert want == alone(ids(30, 40), 30, **sampling(1))


def test_the_first_logprobs_of_a_short_prompt_do_not_see_the_long_one(calm):
    """Case 21: prompts of 12 and 3 tokens; the short one's likeliest tokens and their values, alone and beside."""
    long, short = ids(12, 50), ids(3, 51)
    one = calm.generate(short, max_tokens=3, logprobs=20, seed=0)
    both = calm.generate([long, short], max_tokens=3, logprobs=20, seed=0)
    assert both[1].logprobs == one.logprobs and both[1].tokens == one.tokens


def test_the_same_batch_gives_the_same_tokens_every_time(calm):
    """Case 23: ten times, one hash."""
    prompts = [ids(n, 60) for n in (5, 9)]
    seen = {
        tuple(r.stats.token_sha for r in calm.generate(prompts, max_tokens=4, temperature=1.0, seed=[1, 2]))
        for _ in range(10)
    }
    assert len(seen) == 1


def test_trained_slots_at_their_boundaries_equal_alone(trained, alone_trained):
    """Cases 6, 20 on text: window and top-k 32, below, on, above and twice."""
    text = golden_prompts("code_long")[0]
    prompts = [text[:n] for n in (31, 32, 33, 64, 65)]
    want = [alone_trained(p, 10, **sampling(i % 2)) for i, p in enumerate(prompts)]
    handles = []
    for i, prompt in enumerate(prompts):
        handles.append(trained.open(prompt, max_tokens=10, max_drafts=i, **sampling(i % 2)))
        trained.step()
    run(trained, *handles)
    assert [h.tokens for h in handles] == want
