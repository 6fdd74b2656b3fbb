"""Slot: one sequence's tokens, text and counters on the host; knows no arrays, no layers and no other slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.engine.params import SamplingParams
from tensorfold.engine.reply import Reply, Stats, TokenLogprobs
from tensorfold.text.tokenizer import Tokenizer


class NumericError(ArithmeticError):
    """A slot's logits are not finite; the message names the position and the first layer whose output is not."""


@dataclass(frozen=True)
class Outcome:
    """What a round gave a slot: the drawn tokens up to the first disagreement,
    and whether the last of them is usable."""

    tokens: Sequence[int]
    finite: bool
    logprobs: Sequence[TokenLogprobs] = ()


class Slot:
    """A sequence of ids, of which the first `committed` are in the caches; the rest is pending."""

    def __init__(self, ids: Sequence[int], params: SamplingParams, tokenizer: Tokenizer, max_drafts: int):
        self.tokenizer, self.ids, self.committed = tokenizer, list(ids), 0
        self.place, self.pages = -1, list[int]()  # the slot memory's
        self.params, self.max_drafts = params, max_drafts
        self.drafts: list[int] = []
        self.acceptance: list[float] = []
        self.silent = False  # fills the caches and draws nothing
        self.targets: list[int] = []  # tokens to score, the last of them after the last of ids
        self.keep_at: tuple[int, ...] = ()  # lengths at which the state is worth keeping
        self.passing = False  # gives its place back when its reply ends
        self.begun = threading.Event()  # it has a place, or will get none
        self.attend()
        self.error: Exception | None = None
        self.begin(len(self.ids), params)

    def attend(self) -> None:
        """Notes who looked at the reply, and when."""
        self.reader, self.read_at = threading.current_thread(), time.monotonic()

    def begin(self, reply_start: int, params: SamplingParams) -> None:
        """Starts a reply after the ids that are there."""
        self.reply_start, self.params = reply_start, params
        hidden = None if params.skip_special_tokens else (self.tokenizer.eos_id,)  # the eos is never text
        stats = Stats(prompt_tokens=reply_start, drafted=[0] * self.max_drafts, accepted=[0] * self.max_drafts)
        self.reply = Reply(self.tokenizer.detokenizer(hidden), params.stop, stats)
        self.drafts = []

    @property
    def tokens(self) -> list[int]:
        """Ids of the reply, with the eos or the token that completed a stop string."""
        return self.ids[self.reply_start :]

    @property
    def text(self) -> str:
        return self.reply.text()

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        return self.reply.logprobs

    @property
    def stats(self) -> Stats:
        return self.reply.stats

    @property
    def finish_reason(self) -> str | None:
        return self.reply.finish_reason

    @property
    def done(self) -> bool:
        return self.finish_reason is not None

    @property
    def pending(self) -> int:
        """Known ids that are not in the caches yet."""
        return len(self.ids) - self.committed

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.params.max_tokens - (len(self.ids) - self.reply_start)

    def piece_end(self, chunk: int, rows: int) -> int:
        """Where the next piece of the prompt ends: a multiple of `chunk`, a length to keep, or `rows` scored tokens."""
        end = (self.committed // chunk + 1) * chunk
        if self.targets:
            end = min(end, max(self.committed, self._first_scored) + rows)
        return min([end, *(n for n in self.keep_at if n > self.committed)])

    def scored_rows(self, count: int) -> range:
        """Which of the next `count` rows predict a token to score."""
        return range(max(0, self._first_scored - self.committed), count) if self.targets else range(0)

    def target(self, position: int) -> int:
        """The token to score that the row at `position` predicts."""
        return self.targets[position - self._first_scored]

    @property
    def _first_scored(self) -> int:
        return len(self.ids) - len(self.targets)

    @property
    def shareable(self) -> int:
        """How many of the ids another prompt's state may hold: a row that scores is always computed."""
        return self._first_scored + bool(self.targets)

    def resume(self, reply_start: int, finish_reason: str | None, logprobs: Sequence[TokenLogprobs]) -> None:
        """Rebuilds a reply whose ids are there already."""
        self.begin(reply_start, self.params)
        for token in self.tokens:
            self.reply.add(token, drawn=False)
        self.reply.logprobs += logprobs
        self.reply.publish()
        if finish_reason is not None:
            self.finish(finish_reason)

    def twin(self, params: SamplingParams) -> Slot:
        """A slot with the same ids and reply so far, to be given a place of its own."""
        twin = Slot(self.ids, params, self.tokenizer, self.max_drafts)
        twin.resume(self.reply_start, self.finish_reason, self.logprobs)
        twin.committed, twin.acceptance = self.committed, list(self.acceptance)
        twin.stats.reused_tokens = self.committed
        twin.drafts = list(self.drafts) if params == self.params else []
        return twin

    def accept(self, window: int, drafted: int, outcome: Outcome) -> int:
        """Takes a round's outcome over `window` known ids and `drafted` drafts;
        returns how many of its rows stay committed."""
        self.stats.rounds += 1
        self.stats.forwards += 1
        self.drafts = []
        rows = window
        if outcome.tokens or not outcome.finite:
            accepted = len(outcome.tokens) - outcome.finite
            for j in range(drafted):
                self.stats.drafted[j] += 1
                self.stats.accepted[j] += j < accepted
            rows += self._take(outcome) - 1
        self.committed += rows
        self.reply.publish()
        if self.silent and not self.pending:
            self.finish("length")
        return rows

    def _take(self, outcome: Outcome) -> int:
        """Appends tokens until one ends the reply; returns how many were used."""
        for used, token in enumerate(outcome.tokens, 1):
            self.ids.append(token)
            self.reply.logprobs += outcome.logprobs[used - 1 : used]
            self.reply.add(token)
            if self.reply.stops.matched is not None or token == self.tokenizer.eos_id:
                self.finish("stop")
            elif self.remaining <= 0:
                self.finish("length")
            if self.done:
                return used
        return len(outcome.tokens)

    def finish(self, reason: str) -> None:
        """Ends the reply: stop, length, cancelled or error."""
        if not self.done:
            self.drafts = []
            self.reply.finish(reason, self.error)
            self.begun.set()
