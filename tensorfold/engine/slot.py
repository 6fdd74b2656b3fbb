"""Slot: one sequence's tokens, text and counters on the host; knows no arrays, no layers and no other slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from tensorfold.engine.params import SamplingParams
from tensorfold.engine.reply import Reply, Stats, TokenLogprobs
from tensorfold.text.detokenizer import Detokenizer
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
        self.whole_at = 0  # the length at which all layers' rows are there; beyond `committed` inside a long prompt
        self.place, self.pages = -1, list[int]()  # the slot memory's
        self.params, self.max_drafts = params, max_drafts
        self.drafts: list[int] = []
        self.acceptance: list[float] = []
        self.silent = False  # fills the caches and draws nothing
        self.keep_at: tuple[int, ...] = ()  # lengths at which the state is worth keeping
        self.passing = False  # gives its place back when its reply ends
        self.begun = threading.Event()  # it has a place, or will get none
        self.attend()
        self.error: Exception | None = None
        self.begin(len(self.ids), params)
        self.score(0, self.ids[1:] if params.prompt_logprobs is not None else [])

    def attend(self) -> None:
        """Notes who looked at the reply, and when."""
        self.reader, self.read_at = threading.current_thread(), time.monotonic()

    def begin(self, reply_start: int, params: SamplingParams) -> None:
        """Starts a reply after the ids that are there."""
        self.reply_start, self.params = reply_start, params
        self.ends = frozenset(params.stop_token_ids) | frozenset(() if params.ignore_eos else self.tokenizer.eos_ids)
        stats = Stats(prompt_tokens=reply_start, drafted=[0] * self.max_drafts, accepted=[0] * self.max_drafts)
        self.reply = Reply(self._detokenizer(), params.stop, stats, params.min_tokens)
        self.drafts = []

    def score(self, first: int, targets: Sequence[int]) -> None:
        """Asks for the log-probabilities of `targets`, which follow the ids up to the one at position `first`."""
        self.first_scored, self.targets, self.scores = first, list(targets), list[TokenLogprobs]()

    def _detokenizer(self) -> Detokenizer:
        special = self.tokenizer.special_ids if self.params.skip_special_tokens else frozenset()
        return self.tokenizer.detokenizer(special | self.ends)  # what ends a reply is never text

    @property
    def tokens(self) -> list[int]:
        """Ids of the reply, with the eos, stop id or token that completed a stop string."""
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
            end = min(end, max(self.committed, self.first_scored) + rows)
        return min([end, *(n for n in self.keep_at if n > self.committed)])

    def whole_by(self, end: int) -> int:
        """The next length, from `end` on, at which all layers' rows must be there: the prompt's end, one to keep, or
        where tokens begin to be scored."""
        scored = [max(end, self.first_scored + 1)] if self.targets else []
        return min([len(self.ids), *scored, *(n for n in self.keep_at if n >= end)])

    def scored_rows(self, count: int) -> range:
        """Which of the next `count` rows predict a token to score."""
        first = self.first_scored - self.committed
        return range(max(0, first), max(0, min(count, first + len(self.targets))))

    def target(self, position: int) -> int:
        """The token to score that the row at `position` predicts."""
        return self.targets[position - self.first_scored]

    def banned(self, position: int) -> frozenset[int]:
        """Ids that cannot be drawn at `position`, so that the reply has its min_tokens."""
        return self.ends if position < self.reply_start + self.params.min_tokens else frozenset()

    def propose(self, drafts: Sequence[int]) -> None:
        """Takes drafts for the next round, up to the first that would end the reply: nothing behind it can be kept."""
        self.drafts = list(takewhile(lambda token: token not in self.ends, drafts))

    @property
    def shareable(self) -> int:
        """How many ids a kept beginning must be shorter than: a row that scores is always computed."""
        return self.first_scored + 1 if self.targets else len(self.ids)

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
        twin.score(self.first_scored, self.targets)
        twin.scores += self.scores
        twin.committed, twin.whole_at, twin.acceptance = self.committed, self.whole_at, list(self.acceptance)
        twin.stats.reused_tokens = self.committed
        twin.drafts = list(self.drafts) if params == self.params else []
        return twin

    def go_on(self, params: SamplingParams, max_drafts: int) -> None:
        """Takes the reply's end back; `params` differ from its own in max_tokens alone."""
        self.params, self.max_drafts, self.drafts = params, max_drafts, []
        for counts in (self.stats.drafted, self.stats.accepted):
            counts += [0] * (max_drafts - len(counts))
        self.reply.go_on(self._detokenizer())

    def accept(self, known: int, drafted: int, outcome: Outcome) -> int:
        """Takes a round's outcome over that many known ids and drafts; returns how many of its rows stay committed."""
        self.stats.rounds += 1
        self.stats.forwards += 1
        self.drafts = []
        rows = known
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
            if self.reply.stops.matched is not None or token in self.ends:
                self.finish("stop")
            elif self.remaining <= 0:
                self.finish("length")
            if self.done:
                return used
        return len(outcome.tokens)

    def finish(self, reason: str) -> None:
        """Ends the reply: stop, length or cancelled."""
        if not self.done:
            self.drafts = []
            self.reply.finish(reason)
            self.begun.set()

    def fail(self, error: Exception) -> None:
        """Ends the slot for good."""
        self.error, self.drafts = error, []
        self.reply.finish("error", error)
        self.begun.set()
