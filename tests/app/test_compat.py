"""The names of mlx-lm give what Model gives."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tensorfold
from tensorfold import Generation, Model, Piece, SlotHandle
from tensorfold.compat import make_logits_processors, make_sampler
from tests.support.goldens import EXAMPLE

PROMPT = "import os\n"


def plain(model: Model, prompt: Any = PROMPT, **options: Any) -> Generation:
    out = model.generate(prompt, **options)
    assert isinstance(out, Generation)
    return out


def test_load_gives_a_model_and_its_tokenizer() -> None:
    model, tokenizer = tensorfold.load(str(EXAMPLE), draft=False, max_slots=1)
    with model:
        assert tokenizer is model.tokenizer
        assert tokenizer.decode(tokenizer.encode("a b"), skip_special_tokens=True) == "a b"


def test_generate_with_and_without_a_tokenizer(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    want = plain(model, max_tokens=10).text
    assert tensorfold.generate(model, PROMPT, max_tokens=10) == want
    assert tensorfold.generate(model, model.tokenizer, PROMPT, max_tokens=10, verbose=True) == want
    shown = capsys.readouterr().out
    assert shown.startswith(want) and "Prompt: " in shown and "Generation: 10 tokens" in shown


def test_stream_generate_gives_a_response_a_token(model: Model) -> None:
    want = plain(model, max_tokens=10, logprobs=2)
    made = list(tensorfold.stream_generate(model, PROMPT, max_tokens=10, logprobs=2))
    assert [r.token for r in made] == want.tokens and "".join(r.text for r in made) == want.text
    assert [r.logprobs for r in made] == want.logprobs
    assert [r.finish_reason for r in made] == [None] * 9 + ["length"]
    assert [r.generation_tokens for r in made] == list(range(1, 11)) and made[-1].generation_tps > 0


def test_the_last_response_says_why_it_is_the_last(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another thread's round falls between a reader's two looks, and where a reply is cancelled."""
    want, read = plain(model, max_tokens=10).tokens, SlotHandle.read

    def late(self: SlotHandle) -> Piece:
        model.step()
        piece = read(self)
        model.step()
        return piece

    monkeypatch.setattr(SlotHandle, "read", late)
    for made in (list(tensorfold.stream_generate(model, PROMPT, max_tokens=n)) for n in range(1, 11)):
        assert [r.finish_reason for r in made] == [None] * (len(made) - 1) + ["length"]
        assert [r.token for r in made] == want[: len(made)]
    monkeypatch.undo()
    stop = threading.Event()
    pieces = tensorfold.stream_generate(model, PROMPT, max_tokens=100, cancel=stop)
    next(pieces)
    stop.set()
    *_, last = pieces
    assert (last.finish_reason, last.token, last.text) == ("cancelled", model.tokenizer.eos_id, "")


def test_batch_generate_keeps_the_order_and_takes_more_prompts_than_slots(model: Model) -> None:
    prompts = [f"{word} " for word in "one two three four five six seven eight nine ten".split()]
    limits = [1 + i % 4 for i in range(10)]
    made = tensorfold.batch_generate(
        model, model.tokenizer, prompts, max_tokens=limits, return_token_ids=True, return_logprobs=True
    )
    want = [plain(model, p, max_tokens=n, logprobs=0) for p, n in zip(prompts, limits)]
    assert made.texts == [w.text for w in want]
    assert made.logprobs == [[e.logprob for e in w.logprobs or []] for w in want]
    assert made.token_ids == [[t for t in w.tokens if t != model.tokenizer.eos_id] for w in want]
    assert made.stats.generation_tokens == sum(len(w.tokens) for w in want)


def test_samplers_become_keywords(model: Model) -> None:
    want = plain(model, max_tokens=8, temperature=0.9, top_p=0.9, seed=3, repetition_penalty=1.2, logit_bias={5: -3.0})
    text = tensorfold.generate(
        model, PROMPT, max_tokens=8, seed=3, sampler=make_sampler(temp=0.9, top_p=0.9),
        logits_processors=make_logits_processors({5: -3.0}, 1.2),
    )  # fmt: skip
    assert text == want.text


def test_penalties_become_keywords(model: Model) -> None:
    """Those of mlx-lm by name and place; 0 is off there, whatever its context."""
    choices = {"presence_penalty": 1.5, "frequency_penalty": 0.75}
    want = plain(model, max_tokens=12, **choices)
    assert want.tokens != plain(model, max_tokens=12).tokens
    for made in (make_logits_processors(**choices), make_logits_processors(None, 0.0, 20, 1.5, None, 0.75)):
        assert dict(made) == {"logit_bias": None, **choices}
        assert tensorfold.generate(model, PROMPT, max_tokens=12, logits_processors=made) == want.text


def test_the_last_response_has_the_prompts_log_probabilities(model: Model) -> None:
    want = plain(model, max_tokens=4, prompt_logprobs=2).prompt_logprobs
    made = list(tensorfold.stream_generate(model, PROMPT, max_tokens=4, prompt_logprobs=2))
    assert want and [r.prompt_logprobs for r in made] == [None] * (len(made) - 1) + [want]


def test_no_limit_means_what_the_context_leaves(model: Model) -> None:
    pieces = tensorfold.stream_generate(model, PROMPT, max_tokens=-1)
    next(pieces)
    slot = model._engine.slots[0]
    assert slot.params.max_tokens + slot.reply_start == model.max_context
    del pieces


@pytest.mark.parametrize(
    "args,options,message",
    [
        ((), {}, "expected .model, prompt"),
        (("not a tokenizer", "x"), {}, "expected .model, prompt"),
        (("x",), {"max_tokens": 0}, "max_tokens=0"),
        (("x",), {"sampler": lambda x: x}, "sampler must come from"),
        (("x",), {"sampler": make_sampler(0.5), "temperature": 1}, "temperature is given beside sampler"),
        (("x",), {"max_kv_size": 3}, "max_kv_size"),
        ((["x", "y"],), {}, "one prompt"),
    ],
)
def test_wrong_arguments_are_named_at_the_call(model: Model, args: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tensorfold.stream_generate(model, *args, **options)


@pytest.mark.parametrize(
    "prompts,options,message",
    [
        ("x", {}, "list of prompts"),
        ([1, 2], {}, "list of prompts"),
        (["x"], {"max_tokens": [1, 2]}, "max_tokens has 2 entries for 1"),
        (["x", "y"], {"seed": [1]}, "seed has 1 entries for 2"),
        (["x", [99999]], {}, "99999"),
    ],
)
def test_a_wrong_batch_is_refused_before_anything_runs(
    model: Model, monkeypatch: pytest.MonkeyPatch, prompts: Any, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(model.desk, "step", lambda: pytest.fail("a round ran"))
    with pytest.raises((TypeError, ValueError), match=message):
        tensorfold.batch_generate(model, prompts, **options)
