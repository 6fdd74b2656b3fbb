"""What a generation gives back; knows no engine and no slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tensorfold.engine.reply import Moment, Reply, Stats, TokenLogprobs


class Failing(Protocol):
    """A reply that may have failed."""

    @property
    def error(self) -> Exception | None: ...


F = TypeVar("F", bound=Failing)


def one_of(made: Sequence[F]) -> F:
    """The only reply of a call that wanted one. Raises what ended it with an error."""
    (only,) = made
    if only.error is not None:
        raise only.error
    return only


def cut(text: str, most: int = 60) -> str:
    """A text's repr for a line of its own, the end left out where it is long."""
    return repr(text) if len(text) <= most else f"{text[: most - 3]!r}... ({len(text)} characters)"


@dataclass(frozen=True, repr=False)
class Generation:
    """A finished reply.

    text: the reply, cut before a stop string. tokens: ids, with the eos, stop id or token that completed a stop string.
    finish_reason: stop, length, cancelled or error. seed: the one that was used. logprobs: one entry a token, if asked.
    text_with_special: all of `tokens` written out, special ones too, cut nowhere. prompt_logprobs: one entry for each
    token of the prompt after the first, if asked. error: what ended it with "error".
    """

    text: str
    tokens: list[int]
    finish_reason: str
    stats: Stats
    seed: int
    logprobs: list[TokenLogprobs] | None = None
    text_with_special: str = ""
    prompt_logprobs: list[TokenLogprobs] | None = None
    error: Exception | None = None

    def __repr__(self) -> str:
        return f"Generation({cut(self.text)}, {len(self.tokens)} tokens, {self.finish_reason}, seed={self.seed})"


@dataclass(frozen=True, repr=False)
class Piece:
    """What a reply gained since the piece before: its text (perhaps ""), ids, and logprobs if asked for (one entry an
    id); at the end the reason and stats, and prompt_logprobs if asked for."""

    text: str
    tokens: list[int]
    finish_reason: str | None = None
    stats: Stats | None = None
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None

    def __repr__(self) -> str:
        end = f", {self.finish_reason}" if self.finish_reason else ""
        return f"Piece({cut(self.text)}, {len(self.tokens)} tokens{end})"


def piece(
    reply: Reply, before: Moment, now: Moment, logprobs: bool, prompt_logprobs: list[TokenLogprobs] | None
) -> Piece:
    """What is there at `now` and was not at `before`."""
    return Piece(
        reply.text_between(before, now), reply.tokens[before.tokens : now.tokens], now.finish_reason,
        reply.measure() if now.finish_reason else None,
        reply.logprobs[before.logprobs : now.logprobs] if logprobs else None,
        prompt_logprobs if now.finish_reason else None,
    )  # fmt: skip
