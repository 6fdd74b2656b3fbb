"""Special tokens are hidden in text and shown on demand, in one piece and in streams, beside stop strings and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold import Model
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.slot import Outcome, Slot
from tests.text.helpers import example_tokenizer

PROMPT = "def fib(n):"  # its reply opens a turn and ends it
ASSISTANT, THINK_END = "<\uff5cAssistant\uff5c>", "</think>"


def said(model: Model, **options: Any) -> tuple[str, list[int]]:
    out = model.generate(PROMPT, max_tokens=40, **options)
    return out.text, out.tokens


def test_text_hides_special_tokens_and_the_rest_shows_them(model: Model) -> None:
    out, decode = model.generate(PROMPT, max_tokens=40), model.tokenizer.decode
    assert out.finish_reason == "stop" and out.tokens[0] in model.tokenizer.special_ids
    assert out.text == decode(out.tokens, skip_special_tokens=True)
    assert not any(mark in out.text for mark in model.tokenizer.backend.marks)
    assert out.text_with_special == decode(out.tokens)
    assert out.text_with_special.startswith(ASSISTANT + THINK_END + out.text[:4])
    shown, tokens = said(model, skip_special_tokens=False)
    assert tokens == out.tokens and shown == decode(tokens[:-1])  # the eos is never text


@pytest.mark.parametrize("options", [{}, {"stop": ["fib("]}, {"stop": THINK_END}, {"skip_special_tokens": False}])
def test_streams_give_the_text_of_one_piece(model: Model, options: dict[str, Any]) -> None:
    both = {**options, "skip_special_tokens": options.get("skip_special_tokens")}
    want = said(model, **both)
    for draft in (True, False):
        pieces = list(model.stream(PROMPT, max_tokens=40, draft=draft, **both))
        assert ("".join(p.text for p in pieces), [t for p in pieces for t in p.tokens]) == want


def test_a_stop_string_is_looked_for_in_what_is_seen(model: Model) -> None:
    whole, tokens = said(model)
    assert said(model, stop=THINK_END) == (whole, tokens)
    seen, until = said(model, stop=THINK_END, skip_special_tokens=False)
    assert seen == ASSISTANT and until == tokens[:2]


@pytest.mark.parametrize("skip,text,used", [(True, "a", 4), (False, "ab" + ASSISTANT + "cd", 5)])
def test_a_stop_string_may_lie_around_a_hidden_token(skip: bool, text: str, used: int) -> None:
    tokenizer = example_tokenizer()
    ids = [tokenizer.encode(c, add_bos=False)[0] for c in "abcd"]
    ids.insert(2, tokenizer.backend.marks[ASSISTANT])
    slot = Slot([5], SamplingParams(stop=("bc",), skip_special_tokens=skip), tokenizer, 0)
    slot.accept(1, 0, Outcome(ids, True))
    slot.finish("length")
    assert (slot.text, len(slot.tokens)) == (text, used)


def test_a_kept_reply_shows_what_it_showed(model: Model, tmp_path: Path) -> None:
    """Forked and restored, whichever was asked for; a state that asks for nothing new is written as before."""
    for skip in (True, False):
        with model.open(PROMPT, max_tokens=20, skip_special_tokens=skip) as slot:
            for _ in range(3):
                model.step()
            slot.save(tmp_path / "state")
            with slot.fork() as twin, model.restore(tmp_path / "state") as back:
                assert twin.text == back.text == slot.text and (ASSISTANT in slot.text) == (not skip)
                assert back.text_with_special == slot.text_with_special
                while model.step():
                    pass
                assert twin.text == back.text == slot.text
        written = (tmp_path / "state").read_bytes()
        header = json.loads(written[8 : 8 + int.from_bytes(written[:8], "little")])["__metadata__"]["tensorfold"]
        assert ("skip_special_tokens" in json.loads(header)["params"]) == (not skip)
