"""Scores are the log-probabilities of generate, bit for bit, however the rows are cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorfold import CapacityError, Generation, Model, NumericError, Score

PROMPT = "def read_lines(path):\n"


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
    ids = fresh.tokenizer.encode(
        "In the beginning God created the heaven and the earth. And the earth was without form."
    )
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
