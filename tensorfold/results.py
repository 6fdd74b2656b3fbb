"""What a generation gives back; knows no engine."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.engine.slot import Stats, TokenLogprobs


@dataclass(frozen=True)
class Generation:
    """A finished reply.

    text: the reply, cut before a stop string. tokens: ids, with the eos or the token that completed a stop string.
    finish_reason: stop, length, cancelled or error. seed: the one that was used. logprobs: one entry a token, if asked.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    stats: Stats
    seed: int
    logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True)
class Piece:
    """A piece of a streamed reply: its text (perhaps ""), the ids since the last piece,
    and at the end the reason and stats."""

    text: str
    tokens: list[int]
    finish_reason: str | None = None
    stats: Stats | None = None
