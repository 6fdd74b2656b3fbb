"""The schedule: who runs in the next round, with which rows; knows slots and positions, no arrays and no layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.cone import Cone
from tensorfold.engine.drafts import DraftBudget
from tensorfold.engine.slot import Slot
from tensorfold.network.plan import Segment
from tensorfold.state.snapshot import page_count

ROWS = 16  # of all decoding slots in a round


@dataclass(frozen=True)
class Lane:
    """A slot and its rows of a round; wants: drafts that it should have in the next one; whole_at: the length at which
    its slot has every layer's rows again, where these rows leave layers out."""

    slot: Slot
    segment: Segment
    wants: int = 0
    whole_at: int = 0


class Schedule:
    """Rows of a round: one a decoding slot, spare ones to drafts, and one chunk of the first prompt in line, so that
    decoding never waits longer than a chunk."""

    def __init__(self, chunk: int, budget: DraftBudget, drafting: bool, cone: Cone | None):
        """cone: which layers rows of prompts run, None for all."""
        self.chunk, self.budget, self.drafting, self.cone = chunk, budget, drafting, cone

    def lanes(self, slots: Sequence[Slot]) -> list[Lane]:
        """The lanes of the next round over these unfinished slots."""
        decoding = [s for s in slots if s.pending == 1 and not s.silent][:ROWS]
        waiting = [s for s in slots if s.pending > 1 or s.silent][:1]
        lanes, spare = [], ROWS - len(decoding)
        for s in decoding:
            drafts = s.drafts[: max(0, min(spare, s.remaining - 1))]
            spare -= len(drafts)
            lanes.append(Lane(s, _decode(s, s.committed, s.ids[s.committed :] + drafts)))
        lanes += [self._prompt(s, max(1, spare)) for s in waiting]
        drawing = [lane.slot for lane in lanes if lane.segment.draws]
        wants = dict(zip(map(id, drawing), self.budget.wanted(drawing))) if self.drafting else {}
        return [replace(lane, wants=wants.get(id(lane.slot), 0)) for lane in lanes]

    def following(self, lanes: Sequence[Lane]) -> list[Segment] | None:
        """The segments of the round after this one, if all its slots go on decoding; ids and positions are a guess that
        decides shapes alone. None where a slot would need another page."""
        segments, spare = [], ROWS - len(lanes)
        for lane in lanes:
            slot, start = lane.slot, lane.slot.committed + lane.segment.rows
            drafts = max(0, min(spare, lane.wants, slot.remaining - lane.segment.rows - 1))
            spare -= drafts
            if page_count(start + drafts + 1) > len(slot.pages):
                return None
            segments.append(_decode(slot, start, [0] * (drafts + 1)))
        return segments

    def _prompt(self, slot: Slot, rows: int) -> Lane:
        """The next piece of a prompt, with at most `rows` scored ones."""
        ids = slot.ids[slot.committed : slot.piece_end(self.chunk, rows)]
        draws, heads = len(ids) == slot.pending and not slot.silent, slot.scored_rows(len(ids))
        scored = len(heads)
        if draws:
            heads = range(heads.start if scored else len(ids) - 1, len(ids))
        segment = Segment(slot.place, slot.committed, ids, slot.pages, heads, scored=scored)
        if self.cone is None:
            return Lane(slot, segment)
        end = slot.committed + len(ids)
        whole_at = slot.whole_by(end)
        depth = self.cone.depth(whole_at - end)
        if depth == self.cone.depth(0):
            return Lane(slot, segment)
        return Lane(slot, replace(segment, depth=depth), whole_at=whole_at)


def _decode(slot: Slot, start: int, ids: Sequence[int]) -> Segment:
    """One known id and drafts, all drawn from."""
    return Segment(slot.place, start, ids, slot.pages, range(len(ids)), len(ids) - 1)
