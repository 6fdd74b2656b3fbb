"""What a caller may ask of sampling, checked before anything is computed. Knows no arrays, no model and no slots."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensorfold.arguments import ParameterError, ParameterTypeError, flag, integer, integers, number
from tensorfold.keywords import PromptKeywords, SamplingKeywords, names, refuse_unknown

KEYWORDS = names(SamplingKeywords) | names(PromptKeywords)
MAX_LOGPROBS = 20
MAX_PENALTY = 2.0  # as OpenAI has it
# beyond this, temperature times the largest noise leaves float32
MAX_TEMPERATURE = 1e37
SMALLEST_NORMAL = 2.0**-126
LARGEST_FLOAT = float.fromhex("0x1.fffffep127")


@dataclass(frozen=True)
class SamplingParams:
    """Checked sampling choices of one slot. Filters that are off hold their neutral value (top_p 1, top_k 0, min_p 0).

    max_tokens: tokens to generate at most. temperature: 0 is greedy. top_p, min_p: probabilities at temperature 1.
    repetition_penalty: 1 is off. logit_bias: (token id, added value) by id, -inf bans a token. stop: stop strings.
    seed: 0..2^64-1. logprobs: None, or how many likeliest tokens are reported beside the picked one (0..20).
    skip_special_tokens: whether the reply's text leaves special tokens out; stop strings are looked for in that text.
    presence_penalty, frequency_penalty: taken from the logits of tokens that the reply holds already, once and once for
    each time (-2..2, 0 is off). stop_token_ids: ids that end the reply as an eos does. ignore_eos: an eos is a token
    like any other. min_tokens: so many tokens are no end: eos and stop ids are banned from them, and stop strings that
    they complete are passed over. prompt_logprobs: as logprobs, for the tokens of the prompt after the first.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop: tuple[str, ...] = ()
    seed: int = 0
    logprobs: int | None = None
    skip_special_tokens: bool = True
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    prompt_logprobs: int | None = None

    @property
    def counts_reply(self) -> bool:
        """Whether a draw depends on which tokens the reply holds already."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def looks_back(self) -> bool:
        """Whether a draw depends on the tokens before it by more than the logits do."""
        return self.repetition_penalty != 1 or self.counts_reply

    def keywords(self) -> dict[str, Any]:
        """These choices as `parse` takes them."""
        return {**asdict(self), "logit_bias": dict(self.logit_bias)}


def parse(kwargs: Mapping[str, object], vocab_size: int, eos: Collection[int] = ()) -> SamplingParams:
    """Check sampling keywords (only those of KEYWORDS) and return them in their one normal form.

    eos: the ids that end a reply unless they are ignored. None means the default everywhere; without a seed one is
    drawn from the system, so the result always holds it.
    Raises ParameterTypeError (a TypeError and a ValueError) for wrong types and ParameterError (a ValueError) for
    wrong values; a keyword outside KEYWORDS is a TypeError.
    """
    refuse_unknown(kwargs, KEYWORDS)
    given = {name: value for name, value in kwargs.items() if value is not None}
    if "temp" in given and "temperature" in given:
        raise ParameterError(
            f"temperature={given['temperature']!r} and its alias temp={given['temp']!r} are both given: give one"
        )
    heat = "temp" if "temp" in given else "temperature"
    penalty = _real(
        given, "repetition_penalty", 1.0, SMALLEST_NORMAL, LARGEST_FLOAT, "must be a finite number above 0 (1 is off)"
    )
    top_k = integer("top_k", given.get("top_k", 0), 0)
    top_p = _real(given, "top_p", 1.0, 0.0, 1.0, "must lie in 0..1 (0 and 1 are off)")
    seed = given["seed"] if "seed" in given else struct.unpack("<Q", os.urandom(8))[0]
    counted = "must lie in -2..2 (0 is off)"
    stops = integers("stop_token_ids", given.get("stop_token_ids", ()), 0, vocab_size - 1)
    params = SamplingParams(
        max_tokens=integer("max_tokens", given.get("max_tokens", SamplingParams.max_tokens), 1),
        temperature=_real(given, heat, 0.0, 0.0, MAX_TEMPERATURE, f"must lie in 0..{MAX_TEMPERATURE:g} (0 is greedy)"),
        # a top_p that float32 would round to 0 still means the likeliest token alone
        top_p=max(top_p, SMALLEST_NORMAL) if top_p > 0 else 1.0,
        top_k=top_k if top_k < vocab_size else 0,
        min_p=_real(given, "min_p", 0.0, 0.0, 1.0, "must lie in 0..1 (0 is off)"),
        repetition_penalty=penalty,
        logit_bias=_bias(given.get("logit_bias"), vocab_size),
        stop=_stops(given.get("stop")),
        seed=integer("seed", seed, 0, 2**64 - 1),
        logprobs=_count(given, "logprobs"),
        skip_special_tokens=flag("skip_special_tokens", given.get("skip_special_tokens", True)),
        presence_penalty=_real(given, "presence_penalty", 0.0, -MAX_PENALTY, MAX_PENALTY, counted),
        frequency_penalty=_real(given, "frequency_penalty", 0.0, -MAX_PENALTY, MAX_PENALTY, counted),
        stop_token_ids=tuple(sorted(set(stops))),
        ignore_eos=flag("ignore_eos", given.get("ignore_eos", False)),
        min_tokens=integer("min_tokens", given.get("min_tokens", 0), 0),
        prompt_logprobs=_count(given, "prompt_logprobs"),
    )
    _check_together(params, vocab_size, eos)
    return params


def _check_together(params: SamplingParams, vocab_size: int, eos: Collection[int]) -> None:
    if params.min_tokens > params.max_tokens:
        raise ParameterError(f"min_tokens={params.min_tokens} is more than max_tokens={params.max_tokens}")
    banned = {token for token, added in params.logit_bias if added == -math.inf}
    if len(banned) >= vocab_size:
        raise ParameterError(f"logit_bias bans all {vocab_size} tokens: leave at least one")
    ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos)}
    if params.min_tokens and len(banned | ends) >= vocab_size:
        raise ParameterError(
            f"min_tokens={params.min_tokens} leaves no token to draw: all {vocab_size} end the reply or are banned "
            "by logit_bias"
        )


def _real(given: Mapping[str, object], name: str, default: float, low: float, high: float, rule: str) -> float:
    value = given.get(name, default)
    found = number(name, value)
    if not low <= found <= high:  # NaN fails every comparison
        raise ParameterError(f"{name}={value!r} {rule}")
    return found


def _bias(value: object, vocab_size: int) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise ParameterTypeError(f"logit_bias={value!r} must map token ids to numbers, not {type(value).__name__}")
    bias: dict[int, float] = {}
    for key, raw in value.items():
        token = integer("logit_bias token id", key, 0, vocab_size - 1)
        added = number(f"logit_bias[{token}]", raw)
        if not (added == -math.inf or abs(added) <= LARGEST_FLOAT):
            raise ParameterError(f"logit_bias[{token}]={raw!r} must be finite in float32, or -inf to ban the token")
        bias[token] = added
    return tuple(sorted(bias.items()))


def _count(given: Mapping[str, object], name: str) -> int | None:
    return integer(name, given[name], 0, MAX_LOGPROBS) if name in given else None




def _stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ParameterTypeError(f"stop={value!r} must be a string or a list of strings, not {type(value).__name__}")
    for item in items:
        if not isinstance(item, str):
            raise ParameterTypeError(f"stop={value!r} must hold strings only, not {type(item).__name__}")
        if not item:
            raise ParameterError(f"stop={value!r} must hold no empty string")
    return tuple(dict.fromkeys(items))
