"""Names that users of mlx-lm know, as thin functions over Model; nothing here computes, and no sampling of its own.

Functions take (model, tokenizer, prompt) as there, or (model, prompt): the model has its tokenizer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.engine.engine import CapacityError
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.handle import SlotHandle
from tensorfold.model import Model
from tensorfold.text.tokenizer import Tokenizer


class Keywords(dict[str, Any]):
    """What `make_sampler` and `make_logits_processors` give: keywords of Model.generate."""


@dataclass(frozen=True)
class GenerationResponse:
    """One token of `stream_generate`. text: what it settled, perhaps "". logprobs: its entry, if logprobs=k was given.

    prompt_tps, generation_tps: tokens a second, 0.0 until known. peak_memory: GB (10^9 bytes). finish_reason:
    on the last
    token, stop or length (or cancelled).
    """

    text: str
    token: int
    logprobs: TokenLogprobs | None
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    peak_memory: float
    finish_reason: str | None = None


@dataclass(frozen=True)
class BatchStats:
    """Totals of a batch: tokens, seconds from start to end, tokens a second over that time, peak memory in GB."""

    prompt_tokens: int
    generation_tokens: int
    seconds: float
    generation_tps: float
    peak_memory: float


@dataclass(frozen=True)
class BatchResponse:
    """Replies of `batch_generate` in the order of the prompts; token_ids and logprobs (of the drawn tokens) if asked
    for."""

    texts: list[str]
    stats: BatchStats
    token_ids: list[list[int]] | None = None
    logprobs: list[list[float]] | None = None


def load(path_or_hf_repo: str, **options: Any) -> tuple[Model, Tokenizer]:
    """`Model.load(path, **options)` and its tokenizer."""
    model = Model.load(path_or_hf_repo, **options)
    return model, model.tokenizer


def make_sampler(temp: float = 0.0, top_p: float = 0.0, min_p: float = 0.0, top_k: int = 0) -> Keywords:
    """Sampling choices, for the keyword `sampler`."""
    return Keywords(temperature=temp, top_p=top_p, min_p=min_p, top_k=top_k)


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None, repetition_penalty: float | None = None
) -> Keywords:
    """Bias and penalty, for the keyword `logits_processors`; the penalty sees all tokens before, not the last few."""
    return Keywords(logit_bias=logit_bias, repetition_penalty=repetition_penalty or None)


def generate(model: Model, *tokenizer_and_prompt: Any, verbose: bool = False, **options: Any) -> str:
    """The text of one reply. Keywords as in Model.generate, and sampler, logits_processors;
    verbose prints as it goes."""
    text, last = "", None
    for last in stream_generate(model, *tokenizer_and_prompt, **options):
        text += last.text
        if verbose:
            print(last.text, end="", flush=True)
    if verbose and last is not None:
        print(
            f"\nPrompt: {last.prompt_tokens} tokens, {last.prompt_tps:.3f} tokens-per-sec"
            f"\nGeneration: {last.generation_tokens} tokens, {last.generation_tps:.3f} tokens-per-sec"
            f"\nPeak memory: {last.peak_memory:.3f} GB"
        )
    return text


def stream_generate(model: Model, *tokenizer_and_prompt: Any, **options: Any) -> Iterator[GenerationResponse]:
    """One response a token, the last with its finish_reason. Arguments are checked at the call;
    max_tokens=-1 is no limit."""
    prompt = _prompt(tokenizer_and_prompt)
    handle = model.open(prompt, **_keywords(model, options, prompt))
    return _responses(model, handle)


def batch_generate(
    model: Model,
    *tokenizer_and_prompts: Any,
    max_tokens: int | Sequence[int] = 128,
    verbose: bool = False,
    return_token_ids: bool = False,
    return_logprobs: bool = False,
    **options: Any,
) -> BatchResponse:
    """Replies to a list of prompts, as many at once as there are slots; max_tokens may be a list, one a prompt."""
    prompts = _prompt(tokenizer_and_prompts)
    if isinstance(prompts, str) or not isinstance(prompts, Sequence) or not prompts or isinstance(prompts[0], int):
        raise TypeError("batch_generate takes a list of prompts, each a str or a list of ids")
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    if len(limits) != len(prompts):
        raise ValueError(f"max_tokens has {len(limits)} entries for {len(prompts)} prompts")
    if return_logprobs:
        options.setdefault("logprobs", 0)
    seeds = options.pop("seed", None)
    every = [seeds] * len(prompts) if seeds is None or isinstance(seeds, int) else list(seeds)
    if len(every) != len(prompts):
        raise ValueError(f"seed has {len(every)} entries for {len(prompts)} prompts")
    calls = [
        (prompt, _keywords(model, {**options, "max_tokens": limit, "seed": seed}, prompt))
        for prompt, limit, seed in zip(prompts, limits, every)
    ]
    for prompt, keywords in calls:
        model._read(prompt, keywords)  # what is wrong is told before anything is computed
    begun = time.perf_counter()
    handles = _run(model, calls, verbose)
    seconds = time.perf_counter() - begun
    made = sum(len(h.tokens) for h in handles)
    stats = BatchStats(
        sum(h.stats.prompt_tokens for h in handles), made, seconds, made / max(seconds, 1e-9),
        max(h.stats.peak_memory for h in handles) / 1e9,
    )  # fmt: skip
    if verbose:
        print(f"[batch_generate] {made} tokens, {stats.generation_tps:.3f} tokens-per-sec")
    return BatchResponse(
        [h.text for h in handles], stats, [_ids(model, h) for h in handles] if return_token_ids else None,
        [[e.logprob for e in h.logprobs or []] for h in handles] if return_logprobs else None,
    )  # fmt: skip


def _run(model: Model, calls: Sequence[tuple[Any, dict[str, Any]]], verbose: bool) -> list[SlotHandle]:
    """Keeps the slots full until every call has its reply."""
    handles: list[SlotHandle] = []
    try:
        while len(handles) < len(calls) or not all(h.done for h in handles):
            while len(handles) < len(calls):
                try:
                    handles.append(model.open(calls[len(handles)][0], **calls[len(handles)][1]))
                except CapacityError:
                    if all(h.done for h in handles):
                        raise  # not a matter of waiting
                    break
            model.step()
            for handle in handles:
                if handle.error is not None:
                    raise handle.error
                if handle.done:
                    handle.close()
            if verbose:
                print(f"[batch_generate] {sum(h.done for h in handles)}/{len(calls)}", end="\r", flush=True)
    finally:
        for handle in handles:
            handle.close()
    return handles


def _responses(model: Model, handle: SlotHandle) -> Iterator[GenerationResponse]:
    shown = seen = 0
    with handle:
        while seen < len(handle.tokens) or not handle.done:
            if not handle.done:
                model.step()
            done, tokens, text = handle.done, handle.tokens, handle.text
            if handle.error is not None:
                raise handle.error
            for i in range(seen, len(tokens)):
                last = i + 1 == len(tokens)
                yield _response(
                    handle, i, text[shown:] if last else "", handle.finish_reason if last and done else None
                )
            seen, shown = len(tokens), len(text)


def _response(handle: SlotHandle, i: int, text: str, finish_reason: str | None) -> GenerationResponse:
    stats, logprobs = handle.stats, handle.logprobs
    return GenerationResponse(
        text, handle.tokens[i], None if logprobs is None else logprobs[i], stats.prompt_tokens, stats.prompt_tps or 0.0,
        i + 1, stats.generation_tps or 0.0, stats.peak_memory / 1e9, finish_reason,
    )  # fmt: skip


def _prompt(args: Sequence[Any]) -> Any:
    """The prompt of (prompt,) or (tokenizer, prompt)."""
    if len(args) == 2 and isinstance(args[0], Tokenizer):
        return args[1]
    if len(args) != 1:
        raise TypeError("expected (model, prompt) or (model, tokenizer, prompt), with the tokenizer that load gave")
    return args[0]


def _keywords(model: Model, options: Mapping[str, Any], prompt: Any) -> dict[str, Any]:
    """Keywords of Model.open for those of mlx-lm."""
    made = dict(options)
    for name in ("sampler", "logits_processors"):
        given = made.pop(name, None)
        if given is None:
            continue
        if not isinstance(given, Keywords):
            raise TypeError(f"{name} must come from tensorfold.compat's make_{name}: sampling runs inside the rounds")
        twice = sorted(set(made) & {k for k, v in given.items() if v is not None})
        if twice:
            raise ValueError(f"{', '.join(twice)} is given beside {name}: give one")
        made |= given
    if made.get("max_tokens") == -1:
        ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        made["max_tokens"] = max(1, model.max_context - len(ids))
    return made


def _ids(model: Model, handle: SlotHandle) -> list[int]:
    """Tokens without the eos, as mlx-lm gives them."""
    tokens = handle.tokens
    return tokens[:-1] if tokens and tokens[-1] == model.tokenizer.eos_id else tokens
