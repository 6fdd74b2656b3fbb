"""Reply: what a slot has said, written by the model's thread and read from any other; knows no arrays and no caches."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorfold.engine.stops import StopMatcher
from tensorfold.text.detokenizer import Detokenizer


@dataclass
class Stats:
    """Counters of one slot. Times are in seconds, rates in tokens a second, memory in bytes."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    ttft_s: float | None = None
    prompt_tps: float | None = None
    generation_tps: float | None = None
    rounds: int = 0
    forwards: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    peak_memory: int = 0
    token_sha: str = ""


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probability of a token and of the likeliest tokens, most likely first,
    before filters and at temperature 1."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Moment:
    """How much of a reply there was at the end of a round, and why it ended, if it had: all of it belongs together.

    tail: text that is shown because no more is to come."""

    texts: int = 0
    tokens: int = 0
    logprobs: int = 0
    finish_reason: str | None = None
    error: Exception | None = None
    drawn: int = 0
    last: float = 0.0
    tail: str = ""
    sha: Any = field(default_factory=hashlib.sha256, repr=False, compare=False)


class Reply:
    """Text, tokens, log-probabilities and counters of one reply.

    The writer adds and then calls `publish`; readers take `now` once and see what was there then. Nothing that is read
    costs in proportion to what was read before: lists only grow, and the hash goes on from token to token.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str], stats: Stats, spared: int = 0):
        """spared: in so many tokens at the beginning stop strings are passed over."""
        self.detokenizer, self.stops, self.stats, self._spared = detokenizer, StopMatcher(stop), stats, spared
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self._texts: list[str] = []
        self._joined = 0, ""  # how many of the texts, and what they are together
        self._sha = hashlib.sha256()
        self._started, self._first, self._last, self._drawn = time.perf_counter(), 0.0, 0.0, 0
        self._ended, self._tail = 0.0, ""
        self.now = Moment()

    # ---- the model's thread

    def add(self, token: int, drawn: bool = True) -> None:
        """Takes one more token; not `drawn` where it was there before this slot."""
        if drawn:
            self._last = time.perf_counter()
            self._first = self._first or self._last
            self._drawn += 1
        self.tokens.append(token)
        self._sha.update(token.to_bytes(4, "little"))
        text = self._settled(token, len(self.tokens))
        if text:
            self._texts.append(text)

    def finish(self, reason: str, error: Exception | None = None) -> None:
        """Ends the reply, with the text that was held back if no stop string came."""
        if self.finish_reason is None:
            if self.stops.matched is None:
                rest = self.stops.feed(self.detokenizer.finish(), len(self.tokens) > self._spared)
                self._tail = rest + self.stops.finish()
            self._ended = time.perf_counter()
        self.finish_reason, self.error = reason, error
        self.publish()

    def go_on(self, detokenizer: Detokenizer) -> None:
        """Takes an end back that was no stop, as if it had not come; clocks stood still since.

        detokenizer: a fresh one, which is brought to where the old one was before the end."""
        self.detokenizer, self.stops = detokenizer, StopMatcher(self.stops.stops)
        for count, token in enumerate(self.tokens, 1):
            self._settled(token, count)
        self.finish_reason, self._tail = None, ""
        pause = time.perf_counter() - self._ended
        self._started += pause
        if self._drawn:
            self._first, self._last = self._first + pause, self._last + pause
        self.publish()

    def _settled(self, token: int, count: int) -> str:
        """The text that may be shown with the reply's token number `count`."""
        return self.stops.feed(self.detokenizer.add(token), count > self._spared)

    def publish(self) -> None:
        """Shows readers what there is now."""
        counts, ending = (len(self._texts), len(self.tokens), len(self.logprobs)), (self.finish_reason, self.error)
        self.now = Moment(*counts, *ending, self._drawn, self._last, self._tail, self._sha.copy())

    # ---- any thread

    def text(self) -> str:
        """All that may be shown."""
        (count, joined), now = self._joined, self.now
        if count < now.texts:
            joined += "".join(self._texts[count : now.texts])
            self._joined = now.texts, joined
        return joined + now.tail

    def text_between(self, before: Moment, now: Moment) -> str:
        """What may be shown at `now` and was not at `before`."""
        return ("".join(self._texts[before.texts : now.texts]) + now.tail).removeprefix(before.tail)

    def measure(self) -> Stats:
        """The counters, with times and the token hash up to the last token."""
        now, s = self.now, self.stats
        made = replace(s, generated_tokens=now.tokens, token_sha=now.sha.hexdigest())
        made.drafted, made.accepted = list(s.drafted), list(s.accepted)
        if now.drawn:
            made.ttft_s = self._first - self._started
            made.prompt_tps = max(0, s.prompt_tokens - s.reused_tokens) / max(made.ttft_s, 1e-9)
        if now.drawn > 1:
            made.generation_tps = (now.drawn - 1) / max(now.last - self._first, 1e-9)
        return made


def token_sha(ids: Sequence[int]) -> str:
    """SHA-256 hex of the ids as little-endian uint32."""
    return hashlib.sha256(np.asarray(ids, "<u4").tobytes()).hexdigest()
