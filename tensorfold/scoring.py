"""Scores of given continuations, for evaluations; knows tokens and log-probabilities, no sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import fsum
from typing import TYPE_CHECKING, Any

from tensorfold.engine.engine import Engine
from tensorfold.keywords import ScoreKeywords, names, refuse_unknown
from tensorfold.requests import text_flags
from tensorfold.rounds import Call, enter, finish
from tensorfold.text.prompts import parse_prompts

if TYPE_CHECKING:
    from tensorfold.desk import Desk


@dataclass(frozen=True)
class Score:
    """How likely a continuation is after its prompt.

    total: sum of the log-probabilities (natural logarithm, float64 sum of float32 values). logprobs:
    one a token, the very
    bits that `generate(logprobs=...)` reports where it draws the same tokens. tokens: ids of the continuation.
    """

    total: float
    logprobs: list[float]
    tokens: list[int]


def score(desk: Desk, prompt: Any, continuation: Any, options: Mapping[str, Any]) -> Score | list[Score]:
    """Scores one continuation, or each of a list of them, of one prompt."""
    refuse_unknown(options, names(ScoreKeywords))
    tokenizer, config, flags = desk.tokenizer, desk.config, text_flags(options)
    prompts, many = parse_prompts(prompt, tokenizer, config, **flags)
    if many:
        raise ValueError("score takes one prompt: call it for each, kept beginnings make that cheap")
    try:
        targets, many = parse_prompts(continuation, tokenizer, config, **{**flags, "add_bos": False})
    except (ValueError, TypeError) as error:
        raise type(error)(f"continuation: {error}") from None
    call = Call.of(options)
    scores = [_one(desk, prompts[0], ids, call) for ids in targets]
    return scores if many else scores[0]


def _one(desk: Desk, ids: list[int], targets: list[int], call: Call) -> Score:
    handle = enter(desk, partial(Engine.score, ids=ids, targets=targets, waits=call.wait is not False), call)
    finish(desk, handle, call)
    found = [entry.logprob for entry in handle.prompt_logprobs or []]
    return Score(fsum(found), found, targets)
