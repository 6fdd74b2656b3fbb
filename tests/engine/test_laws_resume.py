"""Resume law: forked, extended and restored slots give the tokens of a fresh prompt of the same ids."""

from __future__ import annotations

import pytest

from tensorfold import CapacityError
from tests.engine.kit import differences, ids, run, sampling, state

PROMPT = ids(70, 70)
TOKENS = 20


def seeded(seed: int) -> dict:
    return {**sampling(1), "seed": seed}


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("mode", [0, 1])
def test_a_fork_is_a_twin_at_any_round(calm, alone, rounds, mode):
    """Forked before, inside and after its prompt's two chunks, with drafts in the air: both go the way of the one."""
    first = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=4, **sampling(mode))
    for _ in range(rounds):
        calm.step()
    twin = first.fork()
    assert twin.tokens == first.tokens and twin.text == first.text and differences(state(twin), state(first)) == []
    run(calm, first, twin)
    assert differences(state(twin), state(first)) == [] and twin.text == first.text
    tokens = first.tokens
    first.close(), twin.close()
    assert tokens == twin.tokens == alone(PROMPT, TOKENS, **sampling(mode))


def test_forks_with_other_seeds_part_and_each_is_a_fresh_reply_of_its_ids(calm, alone):
    """Case 35: the seed is the fork's own from its first token on; the first slot never notices."""
    first = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=3, **seeded(1))
    while len(first.tokens) < 5:
        calm.step()
    begun = first.tokens
    forks = [first.fork(seed=s) for s in (2, 3)]
    run(calm, first, *forks)
    replies = [h.tokens for h in (first, *forks)]
    for handle in (first, *forks):
        handle.close()
    assert len({tuple(r) for r in replies}) == 3 and all(r[: len(begun)] == begun for r in replies)
    for reply, seed in zip(replies, (1, 2, 3)):
        fresh = alone([*PROMPT, *begun], TOKENS - len(begun), **seeded(seed))
        assert reply[len(begun) :] == fresh
    assert replies[0] == alone(PROMPT, TOKENS, **seeded(1))


@pytest.mark.parametrize("cancel", [False, True])
def test_an_extended_slot_equals_a_fresh_prompt(calm, alone, cancel):
    """Also after a cancel, and twice over; the second reply has its own keywords, text and counters."""
    handle = calm.open(PROMPT[:30], max_tokens=12, max_drafts=5, **sampling(0))
    for _ in range(4):
        calm.step()
    if cancel:
        handle.cancel()
    run(calm, handle)
    whole = PROMPT[:30] + handle.tokens
    for more, mode in ((ids(1, 71), 1), (ids(37, 72), 0)):
        handle.extend(more, max_tokens=10, max_drafts=2, **sampling(mode))
        run(calm, handle)
        whole += more
        got = handle.tokens
        kept = handle.fork()
        handle.close()
        calm.step()
        fresh = calm.open(whole, max_tokens=10, draft=False, **sampling(mode))
        run(calm, fresh)
        assert got == fresh.tokens and kept.text == fresh.text and len(got) == handle.stats.generated_tokens
        assert differences(state(kept), state(fresh)) == []
        fresh.close()
        handle, whole = kept, whole + got


@pytest.mark.parametrize("mode", range(3))
def test_a_reply_that_goes_on_is_the_longer_reply(calm, alone, mode, tmp_path):
    """Cut by max_tokens or a cancel, taken up drafted or not, in a fork or a restored slot: tokens, text,
    log-probabilities, rows and the saved file are those of one run."""
    endless = {**sampling(mode), "ignore_eos": True, "stop_token_ids": []}
    options = {"logprobs": 1, **endless}
    whole = calm.open(PROMPT, max_tokens=TOKENS, draft=False, **options)
    run(calm, whole)
    whole.save(tmp_path / "whole")
    handle = calm.open(PROMPT, max_tokens=5, max_drafts=5, **options)
    run(calm, handle)
    pieces = [handle.read()]
    handle.extend("", max_tokens=7, max_drafts=3)
    while len(handle.tokens) < 8 and not handle.done:
        calm.step()
    handle.cancel()
    assert handle.finish_reason == "cancelled"
    pieces.append(handle.read())
    handle.save(tmp_path / "part")
    others = [handle.fork(), calm.restore(tmp_path / "part", max_drafts=2)]
    for one in (handle, *others):
        one.extend([], max_tokens=TOKENS - len(one.tokens), **({"seed": options["seed"]} if mode else {}))
    run(calm, handle, *others)
    pieces.append(handle.read())
    for one in (handle, *others):
        assert (one.tokens, one.text, one.logprobs) == (whole.tokens, whole.text, whole.logprobs)
        assert one.finish_reason == whole.finish_reason and differences(state(one), state(whole)) == []
        one.save(tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "whole").read_bytes()
    assert [t for p in pieces for t in p.tokens] == whole.tokens and "".join(p.text for p in pieces) == whole.text
    assert handle.stats.prompt_tokens == len(PROMPT) and sum(handle.stats.drafted)
    tokens = handle.tokens
    for one in (whole, handle, *others):
        one.close()
    assert tokens == alone(PROMPT, TOKENS, **endless)


def test_a_reply_goes_on_with_its_own_choices_alone(calm):
    """What is wrong is refused in words, and the reply is as it was."""
    handle = calm.open(PROMPT, max_tokens=3, temperature=1.0, seed=5, draft=False, ignore_eos=True)
    with pytest.raises(ValueError, match="not finished"):
        handle.extend("")
    run(calm, handle)
    tokens = handle.tokens
    wrong = {"temp": 0.5, "seed": 6, "stop": "x", "min_tokens": 2, "prompt_logprobs": 1, "max_tokens": 0}
    for name, value in ({**wrong, "max_drafts": 9}).items():
        with pytest.raises(ValueError, match="temperature" if name == "temp" else name):
            handle.extend("", **{name: value})
    with pytest.raises(TypeError, match="sead"):
        handle.extend("", sead=1)
    with pytest.raises(CapacityError, match="max_tokens can be at most"):
        handle.extend("", max_tokens=calm.max_context)
    assert handle.done and handle.tokens == tokens
    handle.extend("", max_tokens=4, temp=1.0, seed=5)
    run(calm, handle)
    assert len(handle.tokens) == 7 and handle.stats.drafted == []
    handle.close()
    with calm.open(PROMPT, max_tokens=9, stop_token_ids=range(512)) as ended:
        run(calm, ended)
        assert (len(ended.tokens), ended.text, ended.finish_reason) == (1, "", "stop")
        with pytest.raises(ValueError, match="ended by itself"):
            ended.extend("")
        ended.extend([7], max_tokens=2, ignore_eos=True)
        run(calm, ended)
        assert len(ended.tokens) == 2


def test_a_restored_slot_goes_on_as_if_nothing_happened(calm, alone, tmp_path):
    """Cases 25, 35: restored slots, a fresh one and the saved one in the same rounds, drafted and not."""
    first = calm.open(PROMPT, max_tokens=TOKENS, max_drafts=5, logprobs=2, **sampling(1))
    while len(first.tokens) < 7:
        calm.step()
    first.save(tmp_path / "slot")
    again = [calm.restore(tmp_path / "slot"), calm.restore(str(tmp_path / "slot"), draft=False)]
    assert all(h.tokens == first.tokens and h.text == first.text and h.seed == first.seed for h in again)
    fresh = calm.open(PROMPT, max_tokens=TOKENS, **sampling(1))
    run(calm, first, *again, fresh)
    assert first.tokens == fresh.tokens == again[0].tokens == again[1].tokens
    assert again[0].logprobs == again[1].logprobs == first.logprobs and len(first.logprobs) == TOKENS
    assert not any(differences(state(h), state(first)) for h in (*again, fresh))
    assert again[1].stats.drafted == [] and sum(again[0].stats.drafted)
    tokens = first.tokens
    for handle in (first, *again, fresh):
        handle.close()
    assert tokens == alone(PROMPT, TOKENS, **sampling(1))


def test_an_unfinished_prompt_is_saved_and_restored_too(calm, alone, tmp_path):
    handle = calm.open(PROMPT, max_tokens=4, **sampling(0))
    handle.save(tmp_path / "before")
    calm.step()
    handle.save(tmp_path / "inside")
    handle.close()
    for name in ("before", "inside"):
        with calm.restore(tmp_path / name) as again:
            run(calm, again)
        assert again.tokens == alone(PROMPT, 4, **sampling(0))
