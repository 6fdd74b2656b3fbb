"""What a generation gives back; knows no engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorfold.engine.slot import Stats, TokenLogprobs

if TYPE_CHECKING:
    from tensorfold.handle import SlotHandle


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

    @staticmethod
    def of(handle: SlotHandle) -> Generation:
        """The reply of a slot that is done."""
        return Generation(
            handle.text, handle.tokens, handle.finish_reason or "stop", handle.stats, handle.seed, handle.logprobs
        )


@dataclass(frozen=True)
class Piece:
    """A piece of a streamed reply: its text (perhaps ""), the ids since the last piece,
    and at the end the reason and stats."""

    text: str
    tokens: list[int]
    finish_reason: str | None = None
    stats: Stats | None = None
