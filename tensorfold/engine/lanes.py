"""Lane rounds: every token, drafted or not, solo or batched, prompt or reply, comes out of `Lanes.round`.

Knows slots and positions; knows no layers, no text rules and no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np

from tensorfold.engine import outcome
from tensorfold.engine.commit import Commit
from tensorfold.engine.drafts import DraftBudget
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.pick import Picked, pick
from tensorfold.engine.propose import propose
from tensorfold.engine.rows import RowParams
from tensorfold.engine.schedule import ROWS, Lane, Schedule
from tensorfold.engine.slot import NumericError, Slot
from tensorfold.engine.verify import judge
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import Gather, Lookup
from tensorfold.network.forward import Forward, Network
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.network.replay import Replay
from tensorfold.state.slot_memory import SlotMemory


class Lanes:
    """Runs rounds over open slots; one per model, on the thread that owns its arrays."""

    def __init__(
        self, network: Network, drafter: Drafter | None, memory: SlotMemory, engram: Gather, chunk: int,
        fixed_drafts: bool,
    ):  # fmt: skip
        self.network, self.drafter, self.memory, self.engram = network, drafter, memory, engram
        self.caches, self.backend, self.config = memory.caches, network.backend, network.config
        self.forward = Replay(network, memory.caches) if network.traceable else network
        self.planner = Planner(self.config)
        self.budget = DraftBudget(ROWS, fixed_drafts)
        self.schedule = Schedule(chunk, self.budget, drafter is not None, self.config.cone)
        self.guard: Callable[[], None] = lambda: None  # raises if what the round was computed from has changed

    @property
    def block(self) -> int:
        """Most drafts of a slot in a round."""
        return self.drafter.block if self.drafter else 0

    def round(self, slots: Sequence[Slot]) -> list[Slot]:
        """One round over the unfinished slots; returns those that took part."""
        lanes = self.schedule.lanes([s for s in slots if not s.done])
        if not lanes:
            return []
        begun = time.perf_counter()
        plan = self._plan(lanes)
        new = self.forward(plan, self.caches)
        picked = self._draw(lanes, new.logits)
        verdict = judge(picked, plan.segments)
        rings = self._ingest(new, plan)
        rewindable = any(lane.segment.drafts and lane.slot.params.stop for lane in lanes)
        commit = Commit(self.caches, plan, new, rings, self.backend, rewindable)
        commit.keep(verdict.kept)
        drafts = propose(self.drafter, lanes, verdict, self.caches, self.planner.rope) if self.drafter else None
        values = outcome.values_of(verdict, picked, drafts)
        mx.async_eval(list(values.values()))
        self._build_ahead(lanes, plan)
        read = outcome.blocking_read(values)
        self.guard()
        kept, bad = outcome.apply(lanes, read, self.budget)
        if list(read["kept"]) != kept:  # a stop string ended a reply, which only the host can see
            commit.rewind(read["kept"], kept)
        self._fail(bad)
        mx.async_eval(self.caches.arrays())  # written in place, now that nothing of the round reads them any more
        if all(lane.segment.known == 1 for lane in lanes):
            self.budget.costs.add(plan.rows, drafts is not None, time.perf_counter() - begun)
        return [lane.slot for lane in lanes]

    def _ingest(self, new: Forward, plan: Plan) -> list[mx.array]:
        """The drafter's ring rows of what was tapped."""
        if self.drafter is None or new.taps is None:
            return []
        return self.drafter.ingest(new.taps, plan.window_table[: new.taps.shape[0]])

    def _plan(self, lanes: Sequence[Lane]) -> Plan:
        for lane in lanes:
            self.memory.grow(lane.slot, lane.segment.start + lane.segment.rows)
        return self._built([lane.segment for lane in lanes], self.engram([self._lookup(lane) for lane in lanes]))

    def _lookup(self, lane: Lane) -> Lookup:
        """The ids that n-grams of the segment reach back to, and its own."""
        start = lane.segment.start
        return lane.slot.ids[max(0, start - self.config.engram_history) : start], lane.segment.ids

    def _built(self, segments: Sequence[Segment], engram: Sequence[tuple[np.ndarray, np.ndarray]]) -> Plan:
        return self.planner.build(segments, self.caches.slots, self.caches.pages, engram)

    def _draw(self, lanes: Sequence[Lane], logits: mx.array | None) -> Picked | None:
        """What is drawn, or scored, at the rows whose logits were asked for."""
        if logits is None:
            return None
        params, positions, given = list[SamplingParams](), list[int](), list[int]()
        histories, starts, ends = list[Sequence[int]](), list[int](), list[Collection[int]]()
        for lane in lanes:
            slot, s, plain = lane.slot, lane.segment, SamplingParams(logprobs=lane.slot.params.prompt_logprobs)
            for i, row in enumerate(s.heads):
                scored, position = i < s.scored, s.start + row + 1
                params.append(plain if scored else slot.params)
                positions.append(position)
                histories.append([*slot.ids[: s.start], *s.ids[: row + 1]] if params[-1].looks_back else ())
                starts.append(slot.reply_start)
                ends.append(() if scored else slot.banned(position))
                given.append(slot.target(position - 1) if scored else -1)
        rows = RowParams.build(params, positions, histories, starts, ends)
        if max(given) >= 0:
            rows = replace(rows, given=mx.array(given, mx.int32))
        return pick(logits, rows, draw=self.backend.draw)

    def _build_ahead(self, lanes: Sequence[Lane], last: Plan) -> None:
        """While the round runs, the graph of the next one, if all slots go on decoding."""
        if not isinstance(self.forward, Replay) or any(lane.segment.known != 1 for lane in lanes):
            return
        segments = self.schedule.following(lanes)
        if segments is not None:
            rows = sum(s.rows for s in segments)

            def blank(a: mx.array) -> np.ndarray:
                return np.zeros((rows, *a.shape[1:]), np.uint8)

            engram = [(blank(codes), blank(scales)) for codes, scales in last.engram]
            self.forward.prepare(self._built(segments, engram), self.caches)

    def _fail(self, bad: Sequence[Lane]) -> None:
        """Ends slots whose logits are not finite, each with an error that says where that began."""
        for slot in (lane.slot for lane in bad if not lane.slot.done):
            ids = slot.ids[slot.committed : slot.committed + 1]
            lane = Lane(slot, Segment(slot.place, slot.committed, ids, slot.pages, range(1)))
            watch: list[mx.array] = []
            self.network(self._plan([lane]), self.caches, watch)
            fine = outcome.blocking_read({"fine": mx.stack(watch)})["fine"]
            where = f"after layer {int(np.argmin(fine))}" if not fine.all() else "at the head"
            at = f"logits at position {slot.committed}"
            slot.fail(NumericError(f"{at} are not finite; the first such values appear {where}"))
