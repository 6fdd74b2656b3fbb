"""Scores, and the log-probabilities of prompts, are those of generate, bit for bit, however the rows are cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold import CapacityError, Generation, Model, NumericError, Score

PROMPT = "def read_lines(path):\n"
VERSE = "In the beginning God created the heaven and the earth. And the earth was without form."


def made(model: Model, **options: Any) -> Generation:
    out = model.generate(PROMPT, logprobs=0, **options)
    assert isinstance(out, Generation)
    return out


def scored(model: Model, prompt: Any, continuation: Any, **options: Any) -> Score:
    score = model.score(prompt, continuation, **options)
    assert isinstance(score, Score)
    return score


def bits(values: Any) -> bytes:
    return np.asarray(values, np.float64).tobytes()


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "seed": 5}], ids=["greedy", "sampled"])
def test_a_score_is_what_generate_reports(model: Model, fresh: Model, options: dict[str, Any]) -> None:
    out = made(model, max_tokens=24, **options)
    want = [entry.logprob for entry in out.logprobs or []]
    for one in (model, fresh):
        score = scored(one, PROMPT, out.tokens)
        assert bits(score.logprobs) == bits(want) and score.tokens == out.tokens and score.total == math.fsum(want)


@pytest.mark.parametrize("chunk,rows", [(64, 16), (7, 5), (5, 1)])
def test_any_chunking_gives_the_same_bits(fresh: Model, monkeypatch: pytest.MonkeyPatch, chunk: int, rows: int) -> None:
    ids = fresh.tokenizer.encode(VERSE)
    whole = scored(fresh, ids[:12], ids[12:30])
    schedule = fresh._engine.lanes.schedule
    monkeypatch.setattr(schedule, "chunk", chunk)
    monkeypatch.setattr("tensorfold.engine.schedule.ROWS", rows)
    assert bits(scored(fresh, ids[:12], ids[12:30]).logprobs) == bits(whole.logprobs)


def test_scores_beside_replies_change_neither(model: Model) -> None:
    alone, score = made(model, max_tokens=12), scored(model, PROMPT, "    return 1\n")
    with model.open(PROMPT, max_tokens=12) as slot, model.open("And the ", max_tokens=12) as other:
        model.step()
        beside = scored(model, PROMPT, "    return 1\n")
        while model.step():
            pass
        assert bits(beside.logprobs) == bits(score.logprobs) and slot.tokens == alone.tokens and other.done


def test_a_list_is_scored_in_order_and_the_prompt_is_computed_once(model: Model) -> None:
    prompt = "And the LORD said unto "
    rounds = []
    step = model._engine.lanes.round
    model._engine.lanes.round = lambda slots: rounds.append(len(slots)) or step(slots)  # type: ignore[method-assign,func-returns-value]
    try:
        scores = model.score(prompt, ["Moses", "banana", [5]])
        again = model.score(prompt, "Moses")
    finally:
        model._engine.lanes.round = step  # type: ignore[method-assign]
    assert isinstance(scores, list) and len(scores) == 3 and scores[0].total > scores[1].total
    assert scores[0] == again and scores[2].tokens == [5]
    assert len(rounds) == 5  # prompt, three continuations, one again


def test_prompt_and_continuation_may_fill_the_context_and_no_more(
    fresh: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh._engine, "max_context", 24)
    assert len(scored(fresh, list(range(3, 13)), list(range(3, 18))).logprobs) == 15
    with pytest.raises(CapacityError, match="10 prompt and 16 continuation tokens do not fit 24 positions"):
        fresh.score(list(range(3, 13)), list(range(3, 19)))


@pytest.mark.parametrize(
    "prompt,continuation,message",
    [
        (["a", "b"], "c", "one prompt"),
        ("a", "", "continuation: .*no tokens"),
        ("a", [], "continuation: .*empty"),
        ("a", [2048], "continuation: .*id 2048"),
        ("a", [True], "continuation: .*True"),
        ([2047], "c", "image id 2047"),
    ],
)
def test_wrong_arguments_are_named(fresh: Model, prompt: Any, continuation: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fresh.score(prompt, continuation)


def test_marks_in_a_continuation_are_text_unless_asked(fresh: Model) -> None:
    as_mark = scored(fresh, "a", "</think>", parse_special=True)
    assert len(as_mark.tokens) == 1 and len(scored(fresh, "a", "</think>").tokens) > 1


def test_logits_that_are_not_finite_end_the_score(fresh: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    head = fresh._engine.lanes.network.head
    monkeypatch.setattr(type(head), "__call__", lambda self, x, pre: type(head).logits(self, x[:, 0] * float("nan")))
    with pytest.raises(NumericError, match="position"):
        fresh.score("abc", "def")
    monkeypatch.undo()
    assert scored(fresh, "abc", "def").total < 0


def asked(model: Model, prompt: Any, **options: Any) -> tuple[Generation, list[float]]:
    out = model.generate(prompt, **{"max_tokens": 6, "prompt_logprobs": 2, **options})
    assert isinstance(out, Generation) and out.prompt_logprobs is not None
    return out, [entry.logprob for entry in out.prompt_logprobs]


SHAPED = {"temperature": 1.0, "seed": 3, "repetition_penalty": 2.0, "frequency_penalty": 1.0, "logit_bias": {5: 9.0}}


@pytest.mark.parametrize("options", [{}, {**SHAPED, "stop_token_ids": [9], "min_tokens": 2}], ids=["plain", "shaped"])
def test_a_prompts_log_probabilities_are_its_score_and_leave_the_reply_alone(
    model: Model, fresh: Model, options: dict[str, Any]
) -> None:
    """On a model that keeps a beginning of the prompt, too: such a prompt starts from none."""
    ids = model.tokenizer.encode(PROMPT)
    want = fresh.score(ids[:1], ids[1:])
    model.remember(ids[:4])
    plain = model.generate(PROMPT, max_tokens=6, logprobs=1, **options)
    assert isinstance(want, Score) and isinstance(plain, Generation) and plain.prompt_logprobs is None
    assert plain.stats.reused_tokens >= 4
    for one in (model, fresh, model):
        out, found = asked(one, PROMPT, logprobs=1, **options)
        assert bits(found) == bits(want.logprobs) and out.stats.reused_tokens == 0
        assert (out.tokens, out.logprobs) == (plain.tokens, plain.logprobs)
        entries = out.prompt_logprobs or []
        assert [entry.token for entry in entries] == ids[1:]
        assert all(len(e.top) == 2 and e.top[0][1] >= max(e.logprob, e.top[1][1]) for e in entries)


@pytest.mark.parametrize("chunk,rows", [(64, 16), (7, 5), (5, 1)])
def test_any_chunking_gives_the_same_prompt_bits(
    fresh: Model, monkeypatch: pytest.MonkeyPatch, chunk: int, rows: int
) -> None:
    ids = fresh.tokenizer.encode(VERSE)
    whole, reply = fresh.score(ids[:1], ids[1:]), fresh.generate(ids, max_tokens=6, logprobs=0)
    monkeypatch.setattr(fresh._engine.lanes.schedule, "chunk", chunk)
    monkeypatch.setattr("tensorfold.engine.schedule.ROWS", rows)
    assert isinstance(whole, Score) and isinstance(reply, Generation)
    out, found = asked(fresh, ids, logprobs=0)
    assert bits(found) == bits(whole.logprobs) and (out.tokens, out.logprobs) == (reply.tokens, reply.logprobs)


def test_prompts_beside_others_streamed_extended_forked_and_kept(model: Model, fresh: Model, tmp_path: Path) -> None:
    """A prompt is saved in the middle; what is extended is scored after all that came before."""
    first, more = fresh.tokenizer.encode(PROMPT * 3), fresh.tokenizer.encode(" and the rest", add_bos=False)
    with model.open("And the ", max_tokens=30) as other, model.open(first, max_tokens=3, prompt_logprobs=0) as slot:
        model.step(), model.step()
        assert slot.prompt_logprobs is not None and 0 < len(slot.prompt_logprobs) < len(first) - 1
        slot.save(tmp_path / "slot")
        with slot.fork() as twin, model.restore(tmp_path / "slot") as back:
            while model.step():
                pass
            assert slot.prompt_logprobs == twin.prompt_logprobs == back.prompt_logprobs
            assert slot.tokens == twin.tokens == back.tokens
        assert len(other.tokens) == 30 or other.finish_reason == "stop"
        alone, found = asked(fresh, first, max_tokens=3, prompt_logprobs=0)
        assert slot.prompt_logprobs == alone.prompt_logprobs and slot.tokens == alone.tokens and len(found) > 20
        before = first + slot.tokens
        slot.extend(more, max_tokens=3, prompt_logprobs=0)
        while model.step():
            pass
        want = fresh.score(before, more)
        assert isinstance(want, Score) and slot.read().prompt_logprobs == slot.prompt_logprobs
        assert bits([e.logprob for e in slot.prompt_logprobs or []]) == bits(want.logprobs)
        slot.save(tmp_path / "slot")
        with model.restore(tmp_path / "slot") as back:
            assert back.prompt_logprobs == slot.prompt_logprobs
        slot.extend([9], max_tokens=1)
        assert slot.prompt_logprobs is None


def test_a_prompt_of_one_token_has_none_to_tell(fresh: Model) -> None:
    assert asked(fresh, [5])[1] == []
    with pytest.raises(TypeError, match="unknown keyword prompt_logprobs"):
        fresh.chat([{"role": "user", "content": "a"}], prompt_logprobs=1)  # type: ignore[call-arg]


def test_prompt_logits_that_are_not_finite_end_the_slot(fresh: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the row that the reply is drawn from is fine."""
    head = type(fresh._engine.lanes.network.head)
    real = head.__call__

    def spoilt(self: Any, x: Any, pre: Any) -> Any:
        logits = real(self, x, pre)
        return mx.where(mx.arange(logits.shape[0])[:, None] == 1, mx.nan, logits) if logits.shape[0] > 1 else logits

    monkeypatch.setattr(head, "__call__", spoilt)
    with pytest.raises(NumericError, match="position 1 "):
        asked(fresh, [5, 6, 7, 8], max_tokens=1)
    monkeypatch.undo()
    assert len(asked(fresh, [5, 6, 7, 8])[1]) == 3
