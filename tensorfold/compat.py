"""Names that users of mlx-lm know, as thin functions over Model; nothing here computes, and no sampling of its own.

Functions take (model, tokenizer, prompt) as there, or (model, prompt): the model has its tokenizer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from tensorfold.calls import (
    CallKeywords,
    Keywords,
    ids_of,
    keywords_of,
    limits_of,
    make_logits_processors,
    make_sampler,
    prompt_of,
    refuse_elsewhere,
)
from tensorfold.engine.engine import CapacityError
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.handle import SlotHandle
from tensorfold.keywords import OnePrompt
from tensorfold.model import Model
from tensorfold.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "BatchResponse", "BatchStats", "GenerationResponse", "Keywords", "batch_generate", "generate", "load",
    "make_logits_processors", "make_sampler", "stream_generate",
]  # fmt: skip


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


def load(
    path_or_hf_repo: str,
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    *,
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[Model, Tokenizer]:
    """`Model.load(path, **options)` and its tokenizer. lazy and trust_remote_code change nothing: weights are mapped
    where they can be, and no code of a checkpoint is ever run. TypeError for adapters and changed configs."""
    refuse_elsewhere({"adapter_path": adapter_path, "model_config": model_config})
    changed = {k: v for k, v in (tokenizer_config or {}).items() if k != "trust_remote_code"}
    if changed:
        raise TypeError(f"tokenizer_config={changed!r}: the checkpoint's own tokenizer is used as it is")
    model = Model.load(path_or_hf_repo, **options)
    return model, model.tokenizer


@overload
def generate(
    model: Model, tokenizer: Tokenizer, prompt: OnePrompt, verbose: bool = False, **options: Unpack[CallKeywords]
) -> str: ...
@overload
def generate(model: Model, prompt: OnePrompt, /, *, verbose: bool = False, **options: Unpack[CallKeywords]) -> str: ...
@overload
def generate(model: Model, *, prompt: OnePrompt, verbose: bool = False, **options: Unpack[CallKeywords]) -> str: ...
def generate(model: Model, tokenizer: Any = None, prompt: Any = None, verbose: bool = False, **options: Any) -> str:
    """The text of one reply. Keywords as in Model.generate, and sampler, logits_processors;
    verbose prints as it goes."""
    text, last = "", None
    for last in _open("generate", model, tokenizer, prompt, options):
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


@overload
def stream_generate(
    model: Model, tokenizer: Tokenizer, prompt: OnePrompt, **options: Unpack[CallKeywords]
) -> Iterator[GenerationResponse]: ...
@overload
def stream_generate(
    model: Model, prompt: OnePrompt, /, **options: Unpack[CallKeywords]
) -> Iterator[GenerationResponse]: ...
@overload
def stream_generate(
    model: Model, *, prompt: OnePrompt, **options: Unpack[CallKeywords]
) -> Iterator[GenerationResponse]: ...
def stream_generate(
    model: Model, tokenizer: Any = None, prompt: Any = None, **options: Any
) -> Iterator[GenerationResponse]:
    """One response a token, the last with its finish_reason. Arguments are checked at the call;
    max_tokens=-1 is no limit."""
    return _open("stream_generate", model, tokenizer, prompt, options)


def _open(
    name: str, model: Model, tokenizer: Any, prompt: Any, options: dict[str, Any]
) -> Iterator[GenerationResponse]:
    prompts, many = ids_of(model, prompt_of(name, model, tokenizer, prompt), options)
    if many:
        raise ValueError(f"{name} takes one prompt, not a list of prompts: batch_generate takes a list")
    handle = model.open(prompts[0], **keywords_of(model, prompts[0], options))
    return _responses(model, handle)


def batch_generate(
    model: Model,
    tokenizer: Any = None,
    prompts: Any = None,
    *,
    max_tokens: int | Sequence[int] = 128,
    verbose: bool = False,
    return_token_ids: bool = False,
    return_logprobs: bool = False,
    **options: Any,
) -> BatchResponse:
    """Replies to a list of prompts, as many at once as there are slots; max_tokens may be a list, one a prompt."""
    prompts, many = ids_of(model, prompt_of("batch_generate", model, tokenizer, prompts, "prompts"), options)
    if not many:
        raise TypeError("batch_generate takes a list of prompts, each a str or a list of ids")
    limits = limits_of(max_tokens, len(prompts))
    if return_logprobs:
        options.setdefault("logprobs", 0)
    seeds = options.pop("seed", None)
    every = [seeds] * len(prompts) if seeds is None or isinstance(seeds, int) else list(seeds)
    if len(every) != len(prompts):
        raise ValueError(f"seed has {len(every)} entries for {len(prompts)} prompts")
    calls = [
        (prompt, keywords_of(model, prompt, {**options, "max_tokens": limit, "seed": seed}))
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


def _ids(model: Model, handle: SlotHandle) -> list[int]:
    """Tokens without the eos, as mlx-lm gives them."""
    tokens = handle.tokens
    return tokens[:-1] if tokens and tokens[-1] == model.tokenizer.eos_id else tokens
