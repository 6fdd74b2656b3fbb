"""Draft law: `draft=True` gives the tokens of `draft=False`, at every width, greedy and sampled."""

from __future__ import annotations

import pytest

from tensorfold import Model
from tests.engine.kit import CALM, golden_prompts, ids, run, sampling

# six prompts: shorter than the window, on it, past the candidate limit, past a chunk
PROMPTS = [ids(n, salt) for salt, n in enumerate((1, 11, 16, 33, 65, 20))]
TOKENS = 48


def sample(width: int) -> list[tuple[int, int]]:
    """A third of all prompts and modes for each width; every pair meets at least one width, every width every mode."""
    return [(p, m) for p in range(6) for m in range(3) if (p + m + width) % 3 == 0]


def test_the_sample_covers_every_prompt_and_mode():
    assert {pair for w in range(6) for pair in sample(w)} == {(p, m) for p in range(6) for m in range(3)}


@pytest.fixture(scope="module")
def undrafted(alone):
    """All eighteen undrafted replies, in two rows of nine slots."""
    pairs = [(p, m) for p in range(6) for m in range(3)]
    requests = [(PROMPTS[p], sampling(m)) for p, m in pairs]
    return dict(zip(pairs, alone.together(requests[:9], TOKENS) + alone.together(requests[9:], TOKENS)))


@pytest.mark.parametrize("width", range(1, 6))
def test_random_weights_draw_the_same_tokens_at_every_width(calm, undrafted, width):
    """Cases 1, 4, 6, 74: each width beside the other slots of its sample against one token at a time."""
    handles = [calm.open(PROMPTS[p], max_tokens=TOKENS, max_drafts=width, **sampling(m)) for p, m in sample(width)]
    run(calm, *handles)
    assert [h.tokens for h in handles] == [undrafted[pair] for pair in sample(width)]
    assert all(sum(h.stats.drafted) for h in handles)


@pytest.mark.parametrize("mode", range(3))
def test_random_weights_draw_the_same_tokens_alone(calm, undrafted, alone, mode):
    """Cases 1 and 19: alone, undrafted by draft=False and by max_drafts=0, and drafted."""
    prompt = PROMPTS[3]
    assert alone(prompt, TOKENS, **sampling(mode)) == undrafted[3, mode]
    none = calm.generate(prompt, max_tokens=TOKENS, max_drafts=0, **sampling(mode)) if mode == 0 else None
    assert none is None or (none.tokens == undrafted[3, mode] and none.stats.drafted == [])
    reply = calm.generate(prompt, max_tokens=TOKENS, max_drafts=5, **sampling(mode))
    assert reply.tokens == undrafted[3, mode]


def test_trained_weights_draw_the_same_tokens_at_every_width(trained, alone_trained):
    """Cases 1 and 4 on text: six prompts, greedy and two seeds, widths 1 to 5."""
    prompts = golden_prompts("code", "bible", "docs", "chat_code", "chat_define", "code_sample")
    plan = [(i, i % 3, 1 + i % 5) for i in range(6)]
    want = alone_trained.together([(prompts[p], sampling(m)) for p, m, _ in plan], TOKENS)
    handles = [trained.open(prompts[p], max_tokens=TOKENS, max_drafts=w, **sampling(m)) for p, m, w in plan]
    run(trained, *handles)
    assert [h.tokens for h in handles] == want
    assert all(sum(h.stats.accepted) for h in handles)


def test_fixed_drafts_save_forwards_on_code(trained, alone_trained):
    """Case 12: one verify forward a round, at most 0.55 of them a token with five drafts."""
    prompts = golden_prompts("code", "chat_code")
    replies = [trained.generate(p, max_tokens=TOKENS, max_drafts=5, seed=0) for p in prompts]
    assert replies[0].tokens == alone_trained(prompts[0], TOKENS, **sampling(0))
    assert sum(r.stats.forwards for r in replies) <= 0.55 * sum(r.stats.generated_tokens for r in replies)
    assert all(r.stats.forwards == r.stats.rounds for r in replies)


def test_a_measured_budget_changes_no_token(alone, backend):
    """Case 12: drafting turned up and down by what it pays draws the same."""
    with Model.load(CALM, backend=backend, prefix_bytes=0) as model:
        reply = model.generate(PROMPTS[3], max_tokens=TOKENS, **sampling(1))
    assert reply.tokens == alone(PROMPTS[3], TOKENS, **sampling(1))
