"""Arguments of generate, stream, open and extend, checked before anything is computed;
knows no engine and no arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tensorfold.arguments import flag, integer, shown
from tensorfold.config import ModelConfig
from tensorfold.engine.params import KEYWORDS, SamplingParams, parse
from tensorfold.keywords import ExtendKeywords, TextKeywords, names, refuse_unknown
from tensorfold.text.prompts import parse_prompts
from tensorfold.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Request:
    """One reply to make: its prompt ids, sampling choices, how many drafts a round may hold, and lengths of the prompt
    at which its state is worth keeping."""

    ids: list[int]
    params: SamplingParams
    max_drafts: int
    keep_at: tuple[int, ...] = ()


class Reader:
    """Turns call arguments into requests under one model's limits."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, drafter: bool):
        self.tokenizer, self.config, self.drafter = tokenizer, config, drafter

    def requests(
        self, prompt: Any, options: Mapping[str, Any], n: Any = None, kind: type = ExtendKeywords
    ) -> tuple[list[Request], bool]:
        """A request for each reply in order, and whether a list is wanted. kind: which keywords the call takes.
        Raises TypeError and ValueError naming the argument."""
        refuse_unknown(options, names(kind))
        copies = None if n is None else integer("n", n, 1)
        drafts = self.drafts(options.get("draft"), options.get("max_drafts"))
        _callbacks(options)
        prompts, many = parse_prompts(prompt, self.tokenizer, self.config, **text_flags(options))
        prompts = [ids for ids in prompts for _ in range(copies or 1)]
        choices = self._choices(options, len(prompts), copies)
        return [Request(ids, params, drafts) for ids, params in zip(prompts, choices)], many or copies is not None

    def seeded(self, params: SamplingParams, seed: int) -> SamplingParams:
        """The same choices with another seed."""
        return replace(params, seed=self._parse({"seed": seed}).seed)

    def more(self, params: SamplingParams, options: Mapping[str, Any]) -> tuple[int, int | None]:
        """How many tokens more, and drafts if they are given, for a reply of `params` that goes on.
        Raises TypeError and ValueError naming the argument, also for a choice that is not the reply's own."""
        refuse_unknown(options, names(ExtendKeywords))
        _callbacks(options)
        text_flags(options)
        given = {k: v for k, v in options.items() if k in KEYWORDS and v is not None}
        count = self._parse({"max_tokens": given.pop("max_tokens", None)}).max_tokens
        own = params.keywords()
        if "temp" in given and "temperature" not in given:
            del own["temperature"]
        chosen = self._parse({**own, **given})
        other = [f.name for f in fields(params) if getattr(chosen, f.name) != getattr(params, f.name)]
        if other:
            raise ValueError(
                f"{', '.join(other)}: a reply goes on with the choices that it has; give text or ids to begin another"
            )
        chosen_drafts = options.get("draft") is not None or options.get("max_drafts") is not None
        return count, self.drafts(options.get("draft"), options.get("max_drafts")) if chosen_drafts else None

    def _choices(self, options: Mapping[str, Any], count: int, n: int | None) -> list[SamplingParams]:
        given = {k: v for k, v in options.items() if k in KEYWORDS}
        seeds = given.pop("seed", None)
        every = seed_each(seeds, count, "replies")
        if seeds is not None and n is not None and n > 1 and not _many(seeds):
            raise ValueError(f"seed={seeds!r} with n={n}: n replies need seeds of their own, give a list or none")
        return [self._parse({**given, "seed": s}) for s in every]

    def _parse(self, given: Mapping[str, Any]) -> SamplingParams:
        return parse(given, self.config.vocab_size, self.config.eos_token_ids)

    def drafts(self, draft: Any, most: Any) -> int:
        """How many drafts a round may hold, from `draft` and `max_drafts`."""
        block = self.config.dspark_block_size if self.drafter else 0
        if draft is not None:
            flag("draft", draft)
        if draft and not self.drafter:
            raise ValueError("draft=True, but this model was loaded without a drafter")
        limit = block if most is None else integer("max_drafts", most, 0)
        if limit > self.config.dspark_block_size > 0:
            raise ValueError(f"max_drafts={limit} is more than the drafter's block of {self.config.dspark_block_size}")
        return 0 if draft is False else min(limit, block)


def seed_each(seeds: Any, count: int, what: str) -> list[Any]:
    """A seed for each of `count` replies or prompts: one for all, or as many in a list or an array. Raises ValueError
    for another number of them."""
    if not _many(seeds):
        return [seeds] * count
    if len(seeds) != count:
        raise ValueError(f"seed has {len(seeds)} entries for {count} {what}")
    return list(seeds.tolist() if hasattr(seeds, "tolist") else seeds)


def _many(seeds: Any) -> bool:
    """Whether these are seeds rather than one, which a number of numpy or an array of no dimension is as well."""
    ndim: int = getattr(seeds, "ndim", 0)
    return isinstance(seeds, (list, tuple)) or ndim > 0


def nothing(prompt: Any, options: Mapping[str, Any]) -> bool:
    """Whether a prompt that continues a slot adds no id: an empty text without bos, or an empty list or array."""
    if isinstance(prompt, str):
        return not prompt and not options.get("add_bos")
    flat = isinstance(prompt, (list, tuple)) or getattr(prompt, "ndim", None) == 1
    return flat and len(prompt) == 0


def _callbacks(options: Mapping[str, Any]) -> None:
    for name, form in (("prompt_progress_callback", "done, total"), ("on_result", "i, generation")):
        if options.get(name) is not None and not callable(options[name]):
            raise TypeError(f"{name}={shown(options[name])} must be callable as f({form})")


def text_flags(options: Mapping[str, Any]) -> dict[str, bool]:
    """Those of add_bos and parse_special that are given. Raises TypeError for what is no bool."""
    return {name: flag(name, options[name]) for name in names(TextKeywords) if options.get(name) is not None}


def prompt_progress(callback: Callable[[int, int], Any] | None, done: int, total: int) -> None:
    """Tells a callback how many prompt tokens of a call are computed."""
    if callback is not None:
        callback(done, total)
