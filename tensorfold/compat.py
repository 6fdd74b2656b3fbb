"""Names that users of mlx-lm know, as thin functions over Model; nothing here computes, and no sampling of its own.

Functions take (model, tokenizer, prompt) as there, or (model, prompt): the model has its tokenizer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
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
    refuse_unshown,
)
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.handle import SlotHandle
from tensorfold.keywords import LoadKeywords, OnePrompt, StreamKeywords
from tensorfold.model import Model
from tensorfold.requests import seed_each
from tensorfold.results import Generation, Piece
from tensorfold.rounds import Call, begin, generation, held, pieces, results
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

    prompt_tps, generation_tps: tokens a second, 0.0 until known. peak_memory: GB (10^9 bytes). finish_reason: on the
    last one, stop, length or cancelled; a cancelled reply ends with a response of its own, whose token is the eos.
    prompt_logprobs: on the last one, one entry for each token of the prompt after the first, if asked for.
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
    prompt_logprobs: list[TokenLogprobs] | None = None


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
    **options: Unpack[LoadKeywords],
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
    refuse_unshown("generate", options, "logprobs", "prompt_logprobs")
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
    handle, call = begin(model.desk, prompts[0], keywords_of(model, prompts[0], options))
    return held(handle, _responses(model, handle, call))


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
    refuse_unshown("batch_generate", options, "prompt_logprobs")
    limits = limits_of(max_tokens, len(prompts))
    if return_logprobs:
        options.setdefault("logprobs", 0)
    every = seed_each(options.pop("seed", None), len(prompts), "prompts")
    requests = []
    for ids, limit, seed in zip(prompts, limits, every):  # what is wrong is told before anything is computed
        keywords = keywords_of(model, ids, {**options, "max_tokens": limit, "seed": seed})
        requests += model.desk.read(ids, keywords, kind=StreamKeywords)[0]
    begun, ended = time.perf_counter(), itertools.count(1)

    def tell(i: int, reply: Generation) -> None:
        if reply.error is not None:
            raise reply.error
        if verbose:
            print(f"[batch_generate] {next(ended)}/{len(requests)}", end="\r", flush=True)

    made = results(model.desk, requests, Call.of(options, None), generation, tell)
    seconds = time.perf_counter() - begun
    tokens = sum(len(r.tokens) for r in made)
    stats = BatchStats(
        sum(r.stats.prompt_tokens for r in made), tokens, seconds, tokens / max(seconds, 1e-9),
        max(r.stats.peak_memory for r in made) / 1e9,
    )  # fmt: skip
    if verbose:
        print(f"[batch_generate] {tokens} tokens, {stats.generation_tps:.3f} tokens-per-sec")
    return BatchResponse(
        [r.text for r in made], stats, [_ids(model, r.tokens) for r in made] if return_token_ids else None,
        [[e.logprob for e in r.logprobs or []] for r in made] if return_logprobs else None,
    )  # fmt: skip


def _responses(model: Model, handle: SlotHandle, call: Call) -> Generator[GenerationResponse]:
    count = 0
    with closing(pieces(model.desk, handle, call)) as gained:
        for piece in gained:
            last = len(piece.tokens) - 1
            for i, token in enumerate(piece.tokens):
                count += 1
                entry = piece.logprobs[i] if piece.logprobs else None
                yield _response(handle, token, entry, count, piece if i == last else None)
            if piece.finish_reason is not None and last < 0:  # cancelled: no token of its own tells it
                yield _response(handle, model.tokenizer.eos_id, None, count, piece)


def _response(
    handle: SlotHandle, token: int, logprobs: TokenLogprobs | None, count: int, ended: Piece | None
) -> GenerationResponse:
    """ended: the piece whose last token this is."""
    stats, piece = handle.stats, ended or Piece("", [])
    return GenerationResponse(
        piece.text, token, logprobs, stats.prompt_tokens, stats.prompt_tps or 0.0, count, stats.generation_tps or 0.0,
        stats.peak_memory / 1e9, piece.finish_reason, piece.prompt_logprobs,
    )  # fmt: skip


def _ids(model: Model, tokens: list[int]) -> list[int]:
    """Tokens without the eos, as mlx-lm gives them."""
    return tokens[:-1] if tokens and tokens[-1] in model.tokenizer.eos_ids else tokens
