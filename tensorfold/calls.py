"""The calling forms of mlx-lm read into those of Model: arguments, keywords, samplers; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold import keywords as kw
from tensorfold.arguments import integer, shown
from tensorfold.model import Model
from tensorfold.requests import text_flags
from tensorfold.text.chat import THINK
from tensorfold.text.prompts import parse_prompts
from tensorfold.text.tokenizer import Tokenizer

# what only decides there when something is computed
_SCHEDULING = {
    "prefill_step_size", "prefill_batch_size", "completion_batch_size", "kv_group_size", "quantized_kv_start",
}  # fmt: skip
_ELSEWHERE = {
    "draft_model": "draft=True drafts with the checkpoint's own drafter",
    "num_draft_tokens": "max_drafts is its name here",
    "prompt_cache": "beginnings of prompts are kept without it; model.open and slot.extend go on with one sequence",
    "prompt_caches": "beginnings of prompts are kept without them; model.restore goes on from a file",
    "return_prompt_caches": "slot.save keeps the state of a slot",
    "max_kv_size": "caches hold the whole context, max_context at load limits it",
    "kv_bits": "caches are packed as published",
    "input_embeddings": "prompts are text or ids",
    "adapter_path": "no adapters are applied",
    "model_config": "the checkpoint's own config is used as it is",
}


class Keywords(dict[str, Any]):
    """What `make_sampler` and `make_logits_processors` give: keywords of Model.generate."""


class CallKeywords(kw.StreamKeywords, total=False):
    """What generate and stream_generate take beside model, tokenizer and prompt."""

    sampler: Keywords | None
    logits_processors: Keywords | Sequence[Keywords] | None
    prefill_step_size: int | None


def make_sampler(
    temp: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    min_tokens_to_keep: int = 1,
    top_k: int = 0,
    xtc_probability: float = 0.0,
    **xtc: Any,
) -> Keywords:
    """Sampling choices, for the keyword `sampler`. ValueError for those that are not there."""
    if min_tokens_to_keep != 1:
        raise ValueError(f"min_tokens_to_keep={min_tokens_to_keep!r}: min_p keeps one token at least, leave it out")
    kw.refuse_unknown(xtc, frozenset(("xtc_threshold", "xtc_special_tokens")))
    if xtc_probability:
        raise ValueError(f"xtc_probability={xtc_probability!r}: this sampling is not there, leave it out")
    return Keywords(temperature=temp, top_p=top_p, min_p=min_p, top_k=top_k)


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None,
    repetition_penalty: float | None = None,
    repetition_context_size: int | None = None,
    presence_penalty: float | None = None,
    presence_context_size: int | None = None,
    frequency_penalty: float | None = None,
    frequency_context_size: int | None = None,
) -> Keywords:
    """Bias and penalties, for the keyword `logits_processors`; ValueError where only the last few tokens shall count.

    repetition_penalty sees all tokens before; presence_penalty and frequency_penalty see the reply, as OpenAI defines
    them.
    """
    penalties = {"repetition": repetition_penalty, "presence": presence_penalty, "frequency": frequency_penalty}
    sizes = {"repetition": repetition_context_size, "presence": presence_context_size}
    for name, size in {**sizes, "frequency": frequency_context_size}.items():
        if size is not None and penalties[name]:
            seen = "all tokens before" if name == "repetition" else "the whole reply, as OpenAI defines it"
            raise ValueError(f"{name}_context_size={size!r}: this penalty sees {seen}, leave it out")
    return Keywords(logit_bias=logit_bias, **{f"{name}_penalty": value for name, value in penalties.items() if value})


def prompt_of(name: str, model: Any, tokenizer: Any, prompt: Any, word: str = "prompt") -> Any:
    """The prompt of `name(model, prompt)` or `name(model, tokenizer, prompt)`. TypeError saying what stands where."""
    if not isinstance(model, Model):
        raise TypeError(f"{name} takes the model first, as in {name}(model, tokenizer, {word}), not {shown(model)}")
    if prompt is None and not isinstance(tokenizer, Tokenizer):
        tokenizer, prompt = None, tokenizer
    if isinstance(prompt, Tokenizer):
        raise TypeError(f"{name} takes the tokenizer before the {word}, as in {name}(model, tokenizer, {word})")
    if prompt is None or not (tokenizer is None or isinstance(tokenizer, Tokenizer)):
        said = "" if tokenizer is None or prompt is None else f", not {shown(tokenizer)}"
        raise TypeError(f"{name} expected (model, {word}) or (model, tokenizer, {word}), the tokenizer from load{said}")
    return prompt


def ids_of(model: Model, prompt: Any, options: dict[str, Any]) -> tuple[list[list[int]], bool]:
    """Ids of each prompt, and whether there is a list of them; takes out the options that say how text becomes ids."""
    flags = text_flags(options)
    for name in flags:
        del options[name]
    return parse_prompts(prompt, model.tokenizer, model.config, **flags)


def keywords_of(model: Model, ids: Sequence[int], options: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of Model.open for those of mlx-lm.

    Where a prompt opens a thought, the reply's text keeps special tokens, since scripts split it where that ends.
    """
    made = {name: value for name, value in options.items() if name not in _SCHEDULING}
    refuse_elsewhere(made)
    kw.refuse_unknown(made, kw.names(CallKeywords))
    for name in ("sampler", "logits_processors"):
        given = made.pop(name, None)
        for choice in given if isinstance(given, (list, tuple)) else [] if given is None else [given]:
            if not isinstance(choice, Keywords):
                raise TypeError(f"{name} must come from tensorfold.compat's make_{name}: rounds sample by themselves")
            twice = sorted(set(made) & {k for k, v in choice.items() if v is not None})
            if twice:
                raise ValueError(f"{', '.join(twice)} is given beside {name}: give one")
            made |= choice
    if made.get("max_tokens") == -1:
        made["max_tokens"] = max(1, model.max_context - len(ids))
    if ids[-1] == model.tokenizer.backend.marks.get(THINK):
        made.setdefault("skip_special_tokens", False)
    return made


def refuse_elsewhere(options: dict[str, Any]) -> None:
    """Takes out what mlx-lm knows and this library does by itself; TypeError naming the way here if it asks for it."""
    for name, way in _ELSEWHERE.items():
        value = options.pop(name, None)
        if value is not None and value is not False and value != {}:
            raise TypeError(f"{name}={shown(value)} is not there: {way}")


def refuse_unshown(name: str, options: Mapping[str, Any], *words: str) -> None:
    """Raises TypeError for log-probabilities that `name` would compute and show nobody."""
    for word in words:
        if options.get(word) is not None:
            raise TypeError(f"{word}={shown(options[word])}: {name} shows none, model.generate's reply has them")


def limits_of(max_tokens: Any, count: int) -> list[Any]:
    """max_tokens of each of `count` prompts, from one number or a list."""
    if isinstance(max_tokens, Sequence):
        if len(max_tokens) != count:
            raise ValueError(f"max_tokens has {len(max_tokens)} entries for {count} prompts")
        return list(max_tokens)
    return [integer("max_tokens", max_tokens, -1)] * count
