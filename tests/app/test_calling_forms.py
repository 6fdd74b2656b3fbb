"""The forms in which scripts for mlx-lm call its names, and the names that they ask of a tokenizer."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

import tensorfold
from tensorfold import Model
from tensorfold.compat import make_logits_processors, make_sampler
from tensorfold.text.chat import encode_chat

P = "import os\n"
MESSAGES = [{"role": "user", "content": "define: dog </think>"}]  # the words of a user stay words
NAMES: dict[str, Any] = {
    "P": P, "messages": MESSAGES, "mx": mx, "make_sampler": make_sampler,
    "make_logits_processors": make_logits_processors, "generate": tensorfold.generate,
    "stream_generate": tensorfold.stream_generate, "batch_generate": tensorfold.batch_generate,
}  # fmt: skip

# each gives the reply to P
TEXT_FORMS = """
generate(model, tokenizer, prompt=P, verbose=True, max_tokens=6)
generate(model, tokenizer, P, True, max_tokens=6)
generate(model, tokenizer, P, max_tokens=6, temp=0.0)
generate(model, prompt=P, max_tokens=6)
generate(model, P, max_tokens=6)
generate(model=model, tokenizer=tokenizer, prompt=P, max_tokens=6)
generate(model, tokenizer, prompt=tokenizer.encode(P), max_tokens=6)
generate(model, tokenizer, prompt=mx.array(tokenizer.encode(P)), max_tokens=6)
generate(model, tokenizer, prompt=tokenizer.bos_token + P, max_tokens=6)
generate(model, tokenizer, prompt=tokenizer.decode(tokenizer.encode(P)), max_tokens=6)
generate(model, tokenizer, prompt=P, max_tokens=6, sampler=make_sampler(0.0, 0.9))
generate(model, tokenizer, prompt=P, max_tokens=6, sampler=make_sampler(temp=0.0, top_p=1.0, min_p=0.0, top_k=20))
generate(model, tokenizer, prompt=P, max_tokens=6, logits_processors=make_logits_processors(repetition_penalty=None))
generate(model, tokenizer, prompt=P, max_tokens=6, sampler=None, logits_processors=[])
generate(model, tokenizer, prompt=P, max_tokens=6, logits_processors=[make_logits_processors(logit_bias={5: -9.0})])
generate(model, tokenizer, prompt=P, max_tokens=6, prefill_step_size=512, max_kv_size=None, prompt_cache=None)
generate(model, tokenizer, prompt=P, max_tokens=6, draft_model=None, kv_bits=None, kv_group_size=64)
"".join(r.text for r in stream_generate(model, tokenizer, P, max_tokens=6))
"".join(r.text for r in stream_generate(model, tokenizer, prompt=P, max_tokens=6))
"".join(r.text for r in stream_generate(model, prompt=P, max_tokens=6))
"".join(r.text for r in stream_generate(model, tokenizer, **{"prompt": P, "max_tokens": 6, "sampler": make_sampler()}))
batch_generate(model, tokenizer, prompts=[P], max_tokens=6).texts[0]
batch_generate(model, tokenizer, [tokenizer.encode(P)], verbose=False, max_tokens=[6]).texts[0]
batch_generate(model, prompts=[P, P], max_tokens=6, completion_batch_size=4, prefill_batch_size=2).texts[1]
batch_generate(model, tokenizer, mx.array([tokenizer.encode(P)]), max_tokens=6).texts[0]
""".split("\n")[1:-1]

# each is a prompt of MESSAGES
CHAT_FORMS = """
template(messages, add_generation_prompt=True)
template(messages, tokenize=False, add_generation_prompt=True)
template(messages, tools=None, tokenize=True, add_generation_prompt=True, return_dict=False)
template(messages, None, tokenize=False, add_generation_prompt=True, enable_thinking=True)
template(conversation=messages, add_generation_prompt=True, thinking=True, return_tensors=None)
mx.array(template(messages, add_generation_prompt=True))
tokenizer.decode(template(messages, add_generation_prompt=True))
tokenizer.encode(template(messages, add_generation_prompt=True, tokenize=False))
tokenizer.encode(template(messages, add_generation_prompt=True, tokenize=False), add_special_tokens=False)
""".split("\n")[1:-1]


def names(model: Model) -> dict[str, Any]:
    tokenizer = model.tokenizer
    return {**NAMES, "model": model, "tokenizer": tokenizer, "template": tokenizer.apply_chat_template}


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_form_gives_the_reply(model: Model, form: str) -> None:
    assert eval(form, names(model)) == model.generate(P, max_tokens=6).text


@pytest.mark.parametrize("form", CHAT_FORMS)
def test_a_rendered_conversation_keeps_its_marks_and_nothing_else_becomes_one(model: Model, form: str) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    ids = encode_chat(model.tokenizer, MESSAGES).ids
    prompt = eval(form, names(model))
    assert [request.ids for request in model.desk.read(prompt, {})[0]] == [ids]
    made = next(tensorfold.stream_generate(model, model.tokenizer, prompt, max_tokens=1))
    batch = tensorfold.batch_generate(model, model.tokenizer, [prompt], max_tokens=1, return_token_ids=True)
    assert made.prompt_tokens == batch.stats.prompt_tokens == len(ids) and batch.token_ids == [[made.token]]


def test_a_script_can_split_a_reply_where_its_thought_ends(model: Model) -> None:
    """Where the prompt opens a thought the text keeps what ends it; elsewhere special tokens are hidden."""
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    template = model.tokenizer.apply_chat_template
    for think, shown in ((True, "</think>"), (False, "")):
        prompt = template(MESSAGES[:1], add_generation_prompt=True, enable_thinking=think, tokenize=False)
        reply = model.chat(MESSAGES, thinking=think, max_tokens=40)
        text = tensorfold.generate(model, model.tokenizer, prompt=prompt, max_tokens=40)
        assert text == reply.reasoning + shown + reply.content
    hidden = tensorfold.generate(model, prompt=template(MESSAGES, add_generation_prompt=True), max_tokens=40,
                                 skip_special_tokens=True)  # fmt: skip
    assert "</think>" not in hidden


TOKENIZER: dict[str, Any] = {
    "tokenizer.eos_token_id": 1, "tokenizer.bos_token_id": 0, "tokenizer.pad_token_id": 2,
    "tokenizer.eos_token_ids": {1}, "tokenizer.unk_token_id": None, "tokenizer.vocab_size": 2048,
    "tokenizer.bos_token": "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "tokenizer.eos_token": "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "tokenizer.chat_template is not None": True, "tokenizer.has_chat_template": True,
    "tokenizer.has_thinking": True, "tokenizer.think_start": "<think>", "tokenizer.think_end": "</think>",
    "tokenizer.get_vocab()['<think>']": 2044, "len(tokenizer.get_vocab())": 2048,
    "tokenizer.get_added_vocab()['</think>']": 2045,
    "tokenizer.convert_tokens_to_ids('</think>')": 2045, "tokenizer.convert_tokens_to_ids('no such token')": None,
    "tokenizer.convert_tokens_to_ids(['<think>', '</think>'])": [2044, 2045],
    "tokenizer.convert_ids_to_tokens(2044)": "<think>", "tokenizer.convert_ids_to_tokens([2045])": ["</think>"],
    "tokenizer.all_special_ids == sorted(tokenizer.get_added_vocab().values())": True,
    "tokenizer.convert_tokens_to_ids(tokenizer.all_special_tokens) == tokenizer.all_special_ids": True,
    "tokenizer.decode(tokenizer.encode(P), skip_special_tokens=True)": P,
    "tokenizer.decode(tokenizer.encode(P, add_special_tokens=False))": P,
    "tokenizer.batch_decode([tokenizer.encode(P)], skip_special_tokens=True)": [P],
    "tokenizer.decode(tokenizer.eos_token_id)": "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "hasattr(tokenizer, 'apply_chat_template')": True, "tokenizer.name_or_path.endswith('tiny-v41')": True,
}  # fmt: skip


@pytest.mark.parametrize("form", TOKENIZER)
def test_a_tokenizer_has_the_name(model: Model, form: str) -> None:
    assert eval(form, names(model)) == TOKENIZER[form]


# each is refused at the call, saying what is wrong and what to do
WRONG: dict[str, str] = {
    "generate('text', model)": r"takes the model first, as in generate\(model, tokenizer, prompt\), not 'text'",
    "generate(tokenizer, model, P)": "takes the model first",
    "generate((model, tokenizer), P)": "takes the model first",
    "generate(model, P, tokenizer)": "takes the tokenizer before the prompt",
    "generate(model, tokenizer)": r"expected \(model, prompt\) or \(model, tokenizer, prompt\)",
    "generate(model, 'not a tokenizer', P)": "the tokenizer from load, not 'not a tokenizer'",
    "stream_generate('text', model)": "stream_generate takes the model first",
    "batch_generate([P], model)": "batch_generate takes the model first",
    "batch_generate(model, tokenizer, prompt=[P])": "expected .model, prompts.",
    "generate(model, tokenizer, prompt=[P])": "one prompt, not a list of prompts: batch_generate",
    "generate(model, tokenizer, prompt=messages)": "at position 0: chat takes messages",
    "generate(model, tokenizer, prompt=P, max_new_tokens=3)": r"max_new_tokens \(did you mean max_tokens\?\)",
    "generate(model, tokenizer, prompt=P, draft_model=model)": "draft_model=.* is not there: draft=True",
    "generate(model, tokenizer, prompt=P, prompt_cache=[])": "prompt_cache=.* is not there: beginnings",
    "generate(model, tokenizer, prompt=P, kv_bits=4)": "kv_bits=4 is not there: caches are packed",
    "generate(model, tokenizer, prompt=P, logits_processors=[len])": "logits_processors must come from",
    "generate(model, tokenizer, prompt=P, sampler=len)": "sampler must come from",
    "make_sampler(0.7, min_tokens_to_keep=3)": "min_tokens_to_keep=3",
    "make_sampler(0.7, xtc_probability=0.5)": "xtc_probability=0.5",
    "make_logits_processors(repetition_penalty=1.1, repetition_context_size=64)": "penalty sees all tokens before",
    "make_logits_processors(presence_penalty=1.5, presence_context_size=20)": "penalty sees the whole reply",
    "make_logits_processors(None, None, None, None, None, 0.5, 20)": "frequency_context_size=20: .* the whole reply",
    "generate(model, tokenizer, prompt=P, prompt_logprobs=2)": "prompt_logprobs=2: generate shows none",
    "generate(model, tokenizer, prompt=P, logprobs=2)": "logprobs=2: generate shows none, model.generate's reply",
    "batch_generate(model, tokenizer, [P], prompt_logprobs=2)": "prompt_logprobs=2: batch_generate shows none",
    "generate(model, tokenizer, prompt=tokenizer.bos_token + '<\uff5cUser\uff5c>hi')": "rendered prompt.*parse_special",
    "tokenizer.apply_chat_template(messages, enable_thinking=True, thinking=False)": "alias enable_thinking",
    "tokenizer.apply_chat_template(messages, return_dict=True)": "unknown keyword return_dict",
    "tokenizer.apply_chat_template(messages, add_generation_promt=True)": "did you mean add_generation_prompt",
    "tokenizer.apply_chat_template('hello')": "messages must be a list of mappings, not str",
    "load('a', adapter_path='b')": "adapter_path='b' is not there",
    "load('a', tokenizer_config={'eos_token': 'x'})": "the checkpoint's own tokenizer is used",
}


@pytest.mark.parametrize("form", WRONG)
def test_a_wrong_form_is_told_in_words(model: Model, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.desk, "step", lambda: pytest.fail("a round ran"))
    with pytest.raises((TypeError, ValueError), match=WRONG[form]):
        eval(form, {**names(model), "load": tensorfold.load})


def test_load_takes_what_changes_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Model, "load", lambda path, **options: asked.append((path, options)) or Model.__new__(Model))
    monkeypatch.setattr(Model, "tokenizer", "its tokenizer")
    trusting = {"trust_remote_code": True}
    _, tokenizer, *rest = tensorfold.load("a", tokenizer_config=trusting, adapter_path=None, lazy=True)
    assert tensorfold.load("b", trust_remote_code=True, max_slots=2)[1] == tokenizer == "its tokenizer" and not rest
    assert asked == [("a", {}), ("b", {"max_slots": 2})]


# the same of a model's own methods
SWAPPED: dict[str, str] = {
    "Model('examples/tiny-v41')": r"a Model is made by Model.load\(path\), not from 'examples/tiny-v41'",
    "Model.load(model)": r"path=Model\(.* must be a str or a Path, not Model",
    "load(None)": "path=None must be a str or a Path",
    "describe(3)": "path=3 must be a str or a Path",
    "model.restore(tokenizer)": "path=.* must be a str or a Path, not Tokenizer",
    "model.generate(tokenizer)": "a prompt is a str, a sequence of ints.*not .*Tokenizer",
    "model.generate(messages)": "at position 0: chat takes messages",
    "model.generate(P, 20)": "positional argument",
    "model.open(P, n=2)": "unknown keyword n",
    "model.chat(P)": "messages must be a list of mappings, not str",
    "model.chat(messages, 20)": "tools must be a list of mappings, not int",
    "model.score(P, 5)": "continuation: a prompt is a str",
    "tokenizer.decode(P)": "a token id is an int, not 'import os",
    "tokenizer.encode([1, 2])": "text must be a str, not list",
}


@pytest.mark.parametrize("form", SWAPPED)
def test_swapped_arguments_are_told_in_words(model: Model, form: str) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    more = {"Model": Model, "load": tensorfold.load, "describe": tensorfold.describe}
    with pytest.raises(TypeError, match=SWAPPED[form]):
        eval(form, {**names(model), **more})


def test_a_larger_load_is_offered_only_where_there_is_one(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = [
        lambda: model.open(P, max_tokens=5000), lambda: model.score(P, [5] * 5000), lambda: model.remember([5] * 5000)
    ]  # fmt: skip
    for most in (4096, 4000):
        monkeypatch.setattr(model._engine, "max_context", most)
        for call in tries:
            with pytest.raises(tensorfold.CapacityError) as caught:
                call()
            offered = "or load with a larger max_context (up to 4096)" in str(caught.value)
            assert offered == (most < 4096) and str(most) in str(caught.value)
    handles = [model.open(P, max_tokens=1) for _ in range(8)]
    for most in (8, 16):
        monkeypatch.setattr("tensorfold.engine.engine.ROWS", most)
        with pytest.raises(tensorfold.CapacityError, match="all 8 slots are open: close one") as caught:
            model.open(P)
        assert ("or load with a larger max_slots" in str(caught.value)) == (most > 8)
    for handle in handles:
        handle.close()
