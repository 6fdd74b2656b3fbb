"""Lane rounds: every token, drafted or not, solo or batched, prompt or reply, comes out of `Lanes.round`.

Knows slots and positions; knows no layers, no text rules and no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

from tensorfold.engine.drafts import DraftBudget
from tensorfold.engine.pick import Picked, pick
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.engine.rows import RowParams
from tensorfold.engine.slot import NumericError, Outcome, Slot
from tensorfold.engine.verify import Verdict, Window, judge
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import Gather
from tensorfold.network.forward import Network
from tensorfold.network.plan import Plan, Planner
from tensorfold.network.plan import Window as PlannedWindow
from tensorfold.network.replay import Replay
from tensorfold.state.caches import Caches
from tensorfold.state.commit import Commit
from tensorfold.state.pages import Pages
from tensorfold.state.snapshot import page_count

ROWS = 16


@dataclass(frozen=True)
class Lane:
    """One slot's part of a round; `heads` are its rows whose logits are asked for."""

    slot: Slot
    ids: list[int]
    known: int
    draws: bool
    heads: range = range(0)
    wants: int = 0

    @property
    def drafts(self) -> list[int]:
        return self.ids[self.known :]


class Lanes:
    """Runs rounds over open slots; one per model, on the thread that owns its arrays."""

    def __init__(
        self,
        network: Network,
        drafter: Drafter | None,
        caches: Caches,
        engram: Gather,
        chunk: int,
        fixed_drafts: bool,
    ):
        self.network, self.drafter, self.caches, self.engram, self.chunk = network, drafter, caches, engram, chunk
        self.backend, self.config = network.backend, network.config
        self.forward = Replay(network, caches) if network.traceable else network
        self.pages = Pages(caches.pages)
        self.planner = Planner(self.config)
        self.budget = DraftBudget(ROWS, fixed_drafts)
        self.guard: Callable[[], None] = lambda: None  # raises if what the round was computed from has changed

    @property
    def block(self) -> int:
        """Most drafts of a slot in a round."""
        return self.drafter.block if self.drafter else 0

    def round(self, slots: Sequence[Slot]) -> list[Slot]:
        """One round over the unfinished slots; returns those that took part."""
        lanes = self._lanes([s for s in slots if not s.done])
        if not lanes:
            return []
        begun = time.perf_counter()
        plan = self._plan(lanes)
        new = self.forward(plan, self.caches)
        picked = pick(new.logits, self._row_params(lanes), draw=self.backend.draw) if new.logits is not None else None
        verdict = judge(picked, self._windows(lanes), self.config.eos_token_id)
        rings = self.drafter.ingest(new.taps, plan.window_table) if self.drafter and new.taps is not None else []
        rewindable = any(lane.drafts and lane.slot.params.stop for lane in lanes)
        commit = Commit(self.caches, plan, new, rings, self.backend, rewindable)
        commit.keep(verdict.kept)
        drafts = self._propose(lanes, verdict)
        values = self._values(verdict, picked, drafts)
        mx.async_eval(list(values.values()))
        self._prepare_next(lanes, plan)
        read = blocking_read(values)
        self.guard()
        self._rewind(commit, read["kept"], self._apply(lanes, read))
        mx.async_eval(self.caches.arrays())  # written in place, now that nothing of the round reads them any more
        if all(lane.known == 1 for lane in lanes):
            self.budget.costs.add(plan.rows, drafts is not None, time.perf_counter() - begun)
        return [lane.slot for lane in lanes]

    # ---- schedule

    def _lanes(self, slots: Sequence[Slot]) -> list[Lane]:
        """Every decoding slot with its drafts, and one chunk of the first prompt in line."""
        decoding = [s for s in slots if s.pending == 1 and not s.silent][:ROWS]
        waiting = [s for s in slots if s.pending > 1 or s.silent][:1]
        lanes, spare = [], ROWS - len(decoding)
        for s in decoding:
            drafts = s.drafts[: max(0, min(spare, s.remaining - 1))]
            spare -= len(drafts)
            lanes.append(Lane(s, s.ids[s.committed :] + drafts, 1, True, range(len(drafts) + 1)))
        for s in waiting:
            ids = s.ids[s.committed : s.piece_end(self.chunk, max(1, spare))]
            draws = len(ids) == s.pending and not s.silent
            heads = range(len(ids) - 1, len(ids)) if draws else s.scored_rows(len(ids))
            lanes.append(Lane(s, ids, len(ids), draws, heads))
        drawing = [lane for lane in lanes if lane.draws]
        wants = dict(zip(map(id, drawing), self.budget.wanted([lane.slot for lane in drawing]))) if self.drafter else {}
        return [replace(x, wants=wants.get(id(x), 0)) for x in lanes]

    def _plan(self, lanes: Sequence[Lane]) -> Plan:
        windows, runs = [], []
        for lane in lanes:
            slot, end = lane.slot, lane.slot.committed + len(lane.ids)
            self._make_room(slot, end)
            windows.append(PlannedWindow(slot.place, slot.committed, lane.ids, slot.pages, lane.heads))
            before = max(0, slot.committed - self.config.engram_history)
            runs.append((slot.ids[before : slot.committed], lane.ids))
        return self.planner.build(windows, self.caches.slots, self.caches.pages, self.engram(runs))

    def _prepare_next(self, lanes: Sequence[Lane], last: Plan) -> None:
        """While the round runs, the graph of the next one, if all slots go on decoding; positions are a guess that
        decides shapes alone."""
        if not isinstance(self.forward, Replay) or any(lane.known != 1 for lane in lanes):
            return
        windows, spare = [], ROWS - len(lanes)
        for lane in lanes:
            slot, start = lane.slot, lane.slot.committed + len(lane.ids)
            drafts = max(0, min(spare, lane.wants, slot.remaining - len(lane.ids) - 1))
            spare -= drafts
            if page_count(start + drafts + 1) > len(slot.pages):
                return
            windows.append(PlannedWindow(slot.place, start, [0] * (drafts + 1), slot.pages, range(drafts + 1)))
        rows = sum(len(w.ids) for w in windows)

        def blank(a: mx.array) -> np.ndarray:
            return np.zeros((rows, *a.shape[1:]), np.uint8)

        engram = [(blank(codes), blank(scales)) for codes, scales in last.engram]
        self.forward.prepare(self.planner.build(windows, self.caches.slots, self.caches.pages, engram), self.caches)

    def _make_room(self, slot: Slot, length: int) -> None:
        while len(slot.pages) < page_count(length):
            self.need_page()
            slot.pages.append(self.pages.take())

    def need_page(self) -> None:
        """Grows the caches when no page is free."""
        if not self.pages.free:
            more = max(8, self.pages.count)
            self.caches.grow(self.pages.count + more)
            self.pages.add(more)

    # ---- draw

    def _row_params(self, lanes: Sequence[Lane]) -> RowParams:
        params, positions, histories, given = [], [], [], []
        for lane in lanes:
            slot = lane.slot
            for row in lane.heads:
                params.append(slot.params)
                positions.append(slot.committed + row + 1)
                seen = slot.params.repetition_penalty != 1
                histories.append(slot.ids[: slot.committed] + lane.ids[: row + 1] if seen else ())
                given.append(-1 if lane.draws else slot.target(slot.committed + row))
        rows = RowParams.build(params, positions, histories)
        return replace(rows, given=mx.array(given, mx.int32)) if max(given) >= 0 else rows

    def _windows(self, lanes: Sequence[Lane]) -> list[Window]:
        windows, head = [], 0
        for lane in lanes:
            windows.append(Window(lane.known, lane.drafts, head if lane.draws else None))
            head += len(lane.heads)
        return windows

    def _propose(self, lanes: Sequence[Lane], verdict: Verdict) -> mx.array | None:
        """Drafts int32 [S, B] for the next round, from what this one is about to keep."""
        drafting = [i for i, lane in enumerate(lanes) if lane.wants]
        if not drafting or self.drafter is None:
            return None
        block, some = self.drafter.block, mx.array(np.array(drafting, np.int32))
        chosen = [lanes[i] for i in drafting]
        starts = np.array([lane.slot.committed for lane in chosen], np.int32)
        ends = starts + np.array([lane.known for lane in chosen], np.int32)
        last = mx.array(starts) + verdict.kept[some] - 1
        spare = max(len(lane.drafts) for lane in chosen)
        positions = ends[:, None] + np.arange(spare + block)
        tables = self.planner.rope.window(positions.reshape(-1))
        ahead = (last + 1)[:, None] + mx.arange(block)[None] - mx.array(ends)[:, None]
        flat = mx.arange(len(chosen))[:, None] * (spare + block) + mx.clip(ahead, 0, spare + block - 1)
        seen = [x.slot.ids if x.slot.params.repetition_penalty != 1 else () for x in chosen]
        rows = RowParams.build([x.slot.params for x in chosen], last, seen)

        slots = mx.array(np.array([x.slot.place for x in chosen], np.int32))
        where = self.caches, slots, verdict.last[some], last, tables[flat]
        if self.backend.draw is not None and rows.plain:
            return self.drafter.propose_warm(*where, *rows.warmth(len(chosen))[:2])

        def draw(i: int, logits: mx.array, before: mx.array) -> mx.array:
            step = rows.at(last + (2 + i), mx.concatenate([verdict.tokens[some], before], 1))
            return pick(logits, step, draw=self.backend.draw).ids

        return self.drafter.propose(*where, draw).ids

    # ---- apply

    def _values(self, verdict: Verdict, picked: Picked | None, drafts: mx.array | None) -> dict[str, mx.array]:
        values = {"kept": verdict.kept, "tokens": verdict.tokens, "finite": verdict.finite}
        if picked is not None and picked.logprob is not None:
            found = {"logprob": picked.logprob, "top_ids": picked.top_ids, "top_logprobs": picked.top_logprobs}
            values |= {name: value for name, value in found.items() if value is not None} | {"fine": picked.finite}
        if drafts is not None:
            values["drafts"] = drafts
        return values

    def _apply(self, lanes: Sequence[Lane], read: dict[str, np.ndarray]) -> list[int]:
        """Hands every slot its outcome; returns the rows that each keeps."""
        kept, head, drafting = [], 0, 0
        for i, lane in enumerate(lanes):
            slot, finite = lane.slot, bool(read["finite"][i])
            if lane.heads and not lane.draws:
                finite = self._score(lane, read, head)
            tokens = [int(t) for t in read["tokens"][i] if t >= 0]
            usable = tokens if finite else tokens[:-1]
            asked = slot.params.logprobs
            logprobs = [] if asked is None else [_logprobs(read, head + j, t, asked) for j, t in enumerate(usable)]
            if lane.drafts:
                self.budget.observe(slot, len(lane.drafts), len(usable) - finite)
            kept.append(slot.accept(lane.known, len(lane.drafts), Outcome(usable, finite, logprobs)))
            if lane.wants:
                if not slot.done:
                    slot.drafts = [int(t) for t in read["drafts"][drafting][: lane.wants]]
                drafting += 1
            head += len(lane.heads)
            if not finite and not slot.done:
                slot.error = self._explain(slot)
                slot.finish("error")
        return kept

    def _score(self, lane: Lane, read: dict[str, np.ndarray], head: int) -> bool:
        """Hands a scored slot the log-probabilities of the tokens it was given; False if a row was not finite."""
        slot = lane.slot
        for j, row in enumerate(lane.heads):
            slot.logprobs.append(_logprobs(read, head + j, slot.target(slot.committed + row), 0))
        return bool(read["fine"][head : head + len(lane.heads)].all())

    def _rewind(self, commit: Commit, before: np.ndarray, after: Sequence[int]) -> None:
        """Takes back rows behind a stop string, which only the host can see."""
        if any(b != a for b, a in zip(before, after)):
            commit.rewind(mx.array(before), mx.array(np.array(after, np.int32)))

    def _explain(self, slot: Slot) -> NumericError:
        """Runs the bad row once more and asks every layer."""
        watch: list[mx.array] = []
        lane = Lane(slot, slot.ids[slot.committed : slot.committed + 1], 1, True, range(1))
        self.network(self._plan([lane]), self.caches, watch)
        fine = blocking_read({"fine": mx.stack(watch)})["fine"]
        where = f"after layer {int(np.argmin(fine))}" if not fine.all() else "at the head"
        return NumericError(f"logits at position {slot.committed} are not finite; the first such values appear {where}")


def blocking_read(values: dict[str, mx.array]) -> dict[str, np.ndarray]:
    """The engine's only read of device values: once a round."""
    mx.eval(list(values.values()))
    return {name: np.array(value) for name, value in values.items()}


def _logprobs(read: dict[str, np.ndarray], row: int, token: int, count: int) -> TokenLogprobs:
    top = zip(read["top_ids"][row][:count], read["top_logprobs"][row][:count])
    return TokenLogprobs(token, float(read["logprob"][row]), tuple((int(i), float(v)) for i, v in top if i >= 0))
