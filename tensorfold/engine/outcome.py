"""The end of a round on the host: the device values it reads, and what each slot takes of them; knows no layers."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.engine.drafts import DraftBudget
from tensorfold.engine.pick import Picked
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.engine.schedule import Lane
from tensorfold.engine.slot import Outcome
from tensorfold.engine.verify import Verdict

RoundValues = dict[str, np.ndarray]


def values_of(verdict: Verdict, picked: Picked | None, drafts: mx.array | None) -> dict[str, mx.array]:
    """What the host needs to know of a round."""
    values = {"kept": verdict.kept, "tokens": verdict.tokens, "finite": verdict.finite}
    if picked is not None and picked.logprob is not None:
        found = {"logprob": picked.logprob, "top_ids": picked.top_ids, "top_logprobs": picked.top_logprobs}
        values |= {name: value for name, value in found.items() if value is not None} | {"fine": picked.finite}
    if drafts is not None:
        values["drafts"] = drafts
    return values


def blocking_read(values: dict[str, mx.array]) -> RoundValues:
    """The engine's only read of device values: once a round."""
    mx.eval(list(values.values()))
    return {name: np.array(value) for name, value in values.items()}


def apply(lanes: Sequence[Lane], read: RoundValues, budget: DraftBudget) -> tuple[list[int], list[Lane]]:
    """Hands every slot its outcome; returns the rows that each keeps, and the lanes whose values are not finite."""
    kept, bad, head, drafting = [], [], 0, 0
    for i, lane in enumerate(lanes):
        slot, s, finite = lane.slot, lane.segment, bool(read["finite"][i])
        slot.whole_at = max(slot.whole_at, lane.whole_at)
        wrong = _score(lane, read, head)
        head += s.scored
        tokens = [int(t) for t in read["tokens"][i] if t >= 0]
        usable = tokens if finite else tokens[:-1]
        asked = slot.params.logprobs
        logprobs = [] if asked is None else [_logprobs(read, head + j, t, asked) for j, t in enumerate(usable)]
        if s.drafts:
            budget.observe(slot, s.drafts, len(usable) - finite)
        if wrong is None:
            kept.append(slot.accept(s.known, s.drafts, Outcome(usable, finite, logprobs)))
        else:
            kept.append(int(read["kept"][i]))
            slot.committed = wrong  # what the error names: nobody goes on from here
        if lane.wants:
            if not slot.done:
                slot.propose([int(t) for t in read["drafts"][drafting][: lane.wants]])
            drafting += 1
        head += len(s.heads) - s.scored
        if not finite or wrong is not None:
            bad.append(lane)
    return kept, bad


def _score(lane: Lane, read: RoundValues, head: int) -> int | None:
    """Hands a slot the log-probabilities of the tokens it was given; the position of the first row that was not finite,
    if any."""
    slot, s = lane.slot, lane.segment
    for j, row in enumerate(s.heads[: s.scored]):
        position = s.start + row
        if not read["fine"][head + j]:
            return position
        slot.scores.append(_logprobs(read, head + j, slot.target(position), slot.params.prompt_logprobs or 0))
    return None


def _logprobs(read: RoundValues, row: int, token: int, count: int) -> TokenLogprobs:
    top = zip(read["top_ids"][row][:count], read["top_logprobs"][row][:count])
    return TokenLogprobs(token, float(read["logprob"][row]), tuple((int(i), float(v)) for i, v in top if i >= 0))
