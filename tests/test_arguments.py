"""One check of whole numbers behind every argument: the same values pass and the same are refused, wherever given."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold import ChatPiece, ChatReply, Generation, Model, Piece, Stats, TokenLogprobs, ToolCall
from tensorfold.engine.params import parse
from tensorfold.engine.rows import RowParams
from tensorfold.keywords import ExtendKeywords, names
from tensorfold.loading import Options
from tensorfold.requests import Reader
from tensorfold.text.messages import effort_of
from tensorfold.text.prompts import parse_prompts
from tests.text.helpers import example_config, example_tokenizer

CONFIG, TOKENIZER = example_config(), example_tokenizer()


def loaded(name: str) -> Callable[[Any], Any]:
    fitting = dict(
        draft=None, max_slots=1, max_context=None, backend=None, prefix_bytes=0, snapshot_tokens=1,
        draft_policy="fixed", engram="auto", experts="auto", expert_bytes=None, progress=False,
    )  # fmt: skip
    return lambda value: getattr(Options.check(**{**fitting, name: value}), name)


def asked(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(parse({name: value}, CONFIG.vocab_size), name)


def counted(n: Any) -> int:
    return len(Reader(TOKENIZER, CONFIG, True).requests("a", {}, n)[0])


PLACES: dict[str, Callable[[Any], Any]] = {
    **{name: loaded(name) for name in ("max_slots", "max_context", "prefix_bytes", "snapshot_tokens", "expert_bytes")},
    **{name: asked(name) for name in ("max_tokens", "top_k", "seed", "logprobs")},
    "logit_bias": lambda value: parse({"logit_bias": {value: 1.0}}, CONFIG.vocab_size).logit_bias[0][0],
    "max_drafts": lambda value: Reader(TOKENIZER, CONFIG, True).drafts(None, value),
    "n=": counted,
    "position 1": lambda value: parse_prompts([5, value], TOKENIZER, CONFIG)[0][0][1],
    "reasoning_effort": lambda value: effort_of(value, None)[0],
}


@pytest.mark.parametrize("place", PLACES)
def test_whole_numbers_of_every_kind_pass_everywhere(place: str) -> None:
    for value in (3, np.int64(3), np.uint8(3), np.array(3)):
        if place == "logit_bias" and isinstance(value, np.ndarray):
            continue  # no key of a mapping
        found = PLACES[place](value)
        assert found == 3 and type(found) is int, value


@pytest.mark.parametrize("place", PLACES)
def test_nothing_else_passes_anywhere(place: str) -> None:
    for value in (True, np.bool_(True), 3.0, np.float32(3), float("nan"), 3j, "3", -1):
        with pytest.raises((TypeError, ValueError), match=place):
            PLACES[place](value)


@pytest.mark.parametrize(
    "given,near",
    [("max_new_tokens", "max_tokens"), ("temprature", "temperature"), ("top-p", "top_p"), ("sead", "seed")],
)
def test_a_misspelt_keyword_is_told_its_name(given: str, near: str) -> None:
    with pytest.raises(TypeError, match=rf"unknown keyword {given} \(did you mean {near}\?\)"):
        Reader(TOKENIZER, CONFIG, True).requests("a", {given: 1})


def test_a_keyword_like_none_is_told_all_of_them() -> None:
    with pytest.raises(TypeError, match=r"unknown keyword xyz; known are add_bos, .*top_p$") as caught:
        Reader(TOKENIZER, CONFIG, True).requests("a", {"xyz": 1})
    assert set(str(caught.value).split("known are ")[1].split(", ")) == names(ExtendKeywords)


def test_the_number_of_replies_is_a_keyword() -> None:
    """A second positional argument is a max_tokens that slipped, not twenty replies."""
    for call in (Model.generate, Model.open, Model.stream, Model.remember, Model.chat, Model.score):
        kinds = [p.kind for p in inspect.signature(call).parameters.values()]
        required = 3 if call in (Model.score, Model.chat) else 2  # with self
        assert kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) == required, call


def test_a_result_is_shown_in_a_line() -> None:
    """Long texts, lists of ids, log-probabilities and stats are left out; what one looks for first is there."""
    one = TokenLogprobs(5, -0.1, ((5, -0.1),))
    long, short = ("def f():\n" * 2000, [5] * 9999, [one] * 9999), ("a\nb", [5, 6], None)
    for text, tokens, logprobs in (long, short):
        made = Generation(text, tokens, "stop", Stats(drafted=[1] * 99), 7, logprobs, text)
        reply = ChatReply(text, text, [ToolCall("call_1", "weather", text)], "tool_calls", Stats(), tokens, 7, logprobs)
        pieces = [Piece(text, tokens, reason, Stats(), logprobs) for reason in (None, "length")]
        for shown in map(repr, (made, reply, ChatPiece("", "", reply), *pieces)):
            assert len(shown) < 280 and "\n" not in shown and f"{len(tokens)} tokens" in shown and "-0.1" not in shown
    assert repr(made) == r"Generation('a\nb', 2 tokens, stop, seed=7)"
    assert repr(reply) == r"ChatReply('a\nb', reasoning 'a\nb', weather(...), 2 tokens, tool_calls, seed=7)"
    assert [repr(p) for p in pieces] == [r"Piece('a\nb', 2 tokens)", r"Piece('a\nb', 2 tokens, length)"]


def test_the_check_is_written_once() -> None:
    """No other module of the package asks for itself whether an argument is a bool."""
    root = Path(tensorfold.__file__).parent
    surface = [*root.glob("*.py"), *(root / "text").glob("*.py"), *(root / "engine").glob("*.py")]
    asking = []
    for path in surface:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_check = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
            if is_check and "bool" in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
                asking.append(path.relative_to(root).as_posix())
    assert set(asking) <= {"arguments.py", "config.py", "config_keys.py", "config_rules.py"}  # a config's are JSON's


def test_rows_that_ask_for_anything_but_a_temperature_are_not_plain() -> None:
    """Every field counts by itself, those of a later version too: the draw in fewer launches reads none of them."""
    warm = {"temperature", "seed", "position"}
    one = mx.array([1])
    assert RowParams().plain and RowParams(temperature=one, seed=one, position=one).plain
    for field in fields(RowParams):
        assert RowParams(**{field.name: 1 if field.name == "logprobs" else one}).plain == (field.name in warm)
    later = make_dataclass("Later", [("presence", Any, None)], bases=(RowParams,), frozen=True)
    assert later().plain and not later(presence=one).plain
