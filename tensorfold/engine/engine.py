"""Engine: open slots over one network, stepped round by round on the thread that owns the arrays;
knows no prompts' text forms."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import mlx.core as mx

from tensorfold.engine.lanes import Lanes
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.prefix import PrefixStore
from tensorfold.engine.schedule import ROWS
from tensorfold.engine.slot import Slot
from tensorfold.state.snapshot import Snapshot
from tensorfold.text.tokenizer import Tokenizer

LOG = logging.getLogger("tensorfold.slots")


class CapacityError(ValueError):
    """A request that cannot fit, refused before anything is computed."""

    def __init__(self, *words: object):
        super().__init__(*words)
        LOG.info("refused: %s", self)


class Engine:
    """Opens, steps, forks and frees slots. Every method runs on the worker's thread; `dropped` is anybody's."""

    def __init__(self, lanes: Lanes, tokenizer: Tokenizer, max_context: int, prefix_bytes: int, snapshot_tokens: int):
        self.lanes, self.tokenizer, self.max_context = lanes, tokenizer, max_context
        chunk = lanes.schedule.chunk
        self.snapshot_tokens = -(-snapshot_tokens // chunk) * chunk  # where prompt chunks end
        self.memory = memory = lanes.memory
        self.prefixes = PrefixStore(prefix_bytes, memory.page_bytes, memory.drop)
        self.slots: list[Slot] = []
        self._line: deque[Slot] = deque()  # slots that wait for a place, first come first served
        self.dropped: deque[Slot] = deque()  # freed at the next call; takes more from any thread and any finaliser

    # ---- slots

    @property
    def free(self) -> int:
        """Slots that can be opened."""
        self._collect()
        return self.memory.free

    def check(self, ids: Sequence[int], params: SamplingParams) -> None:
        """Raises CapacityError when prompt and reply cannot fit the context."""
        longest = len(ids) + params.max_tokens
        if longest > self.max_context:
            room = self.max_context - len(ids)
            hint = f"max_tokens can be at most {room}" if room > 0 else "shorten the prompt"
            raise CapacityError(
                f"{len(ids)} prompt tokens and max_tokens={params.max_tokens} need {longest} positions; "
                f"the context holds {self.max_context}: {hint}{self._larger}"
            )

    @property
    def _larger(self) -> str:
        """What else can be done about a context that is too small, if the model has more positions."""
        most = self.lanes.config.max_position_embeddings
        return f", or load with a larger max_context (up to {most})" if self.max_context < most else ""

    def open(
        self, ids: Sequence[int], params: SamplingParams, max_drafts: int, silent: bool = False, passing: bool = False,
        keep_at: Sequence[int] = (), waits: bool = False,
    ) -> Slot:  # fmt: skip
        """A slot for a prompt, started from the longest kept beginning; a passing one is freed when its reply ends.

        keep_at: lengths of the prompt at which its state is kept for later prompts, beside the usual ones.
        waits: it stands in line where no place is free.
        """
        if not silent:
            self.check(ids, params)
        slot = Slot(ids, params, self.tokenizer, max_drafts)
        slot.silent, slot.passing, slot.keep_at = silent, passing, tuple(keep_at)
        return self._enter(slot, waits)

    def prefill(self, ids: Sequence[int]) -> Slot:
        """A silent slot whose rounds fill the caches with a beginning, which is then kept for later prompts."""
        if len(ids) > self.max_context:
            raise CapacityError(f"{len(ids)} tokens do not fit the context of {self.max_context}{self._larger}")
        return self.open(ids, SamplingParams(), 0, silent=True, passing=True)

    def score(self, ids: Sequence[int], targets: Sequence[int], waits: bool = False) -> Slot:
        """A silent slot whose rounds collect the log-probabilities of `targets` after `ids`."""
        rows = len(ids) + len(targets) - 1
        if rows > self.max_context:
            raise CapacityError(
                f"{len(ids)} prompt and {len(targets)} continuation tokens do not fit "
                f"{self.max_context} positions{self._larger}"
            )
        slot = Slot([*ids, *targets[:-1]], SamplingParams(prompt_logprobs=0), self.tokenizer, 0)
        slot.silent, slot.passing, slot.keep_at = True, True, (len(ids) - 1,)
        slot.score(len(ids) - 1, targets)
        return self._enter(slot, waits)

    def extend(self, slot: Slot, ids: Sequence[int], params: SamplingParams, max_drafts: int) -> None:
        """Begins another reply after more ids."""
        _check_ended(slot)
        self.check([*slot.ids, *ids], params)
        slot.score(len(slot.ids) - 1, ids if params.prompt_logprobs is not None else [])
        slot.ids += ids
        slot.max_drafts = max_drafts
        slot.begin(len(slot.ids), params)
        slot.stats.reused_tokens = slot.committed

    def go_on(self, slot: Slot, more: int, max_drafts: int | None) -> None:
        """Goes on with a reply that was cut, by so many tokens more; drafts as they were where None."""
        _check_ended(slot)
        if slot.finish_reason == "stop":
            raise ValueError("this reply ended by itself (finish_reason stop): extend it with text or ids")
        self.check(slot.ids, replace(slot.params, max_tokens=more))
        params = replace(slot.params, max_tokens=len(slot.tokens) + more)
        slot.go_on(params, slot.max_drafts if max_drafts is None else max_drafts)

    def fork(self, slot: Slot, params: SamplingParams) -> Slot:
        """A twin of `slot` that goes its own way."""
        if slot.error is not None:
            raise ValueError(f"this slot failed: {slot.error}")
        self._need_place()
        twin = slot.twin(params)
        self.memory.share(slot, twin)
        return self._seated(twin)

    def adopt(self, slot: Slot, state: Snapshot) -> None:
        """Gives a slot made elsewhere (a restored one) a place and its state."""
        self._need_place()
        self.memory.open(slot)
        self._put(slot, state)
        self._seated(slot)

    def cancel(self, slot: Slot) -> None:
        """Ends a slot's reply where it is; one that waits leaves the line."""
        if slot in self._line:
            self._line.remove(slot)
        slot.finish("cancelled")

    def close(self, slot: Slot) -> None:
        """Frees a slot's place and pages, which the next in line gets."""
        if slot in self._line:
            self.cancel(slot)
        if slot in self.slots:
            slot.finish("cancelled")
            self.slots.remove(slot)
            LOG.debug("slot %d: closed after %d ids, %s", slot.place, len(slot.ids), slot.finish_reason)
            self.memory.close(slot)
            self._admit()

    def end(self) -> None:
        """Frees every slot, and ends the line."""
        for slot in [*self._line, *self.slots]:
            self.close(slot)

    # ---- rounds

    def step(self) -> bool:
        """One round over all open slots; True while any is unfinished."""
        self._collect()
        self._round(self.slots)
        return any(not s.done for s in self.slots)

    def carry_on(self, slots: Collection[Slot]) -> None:
        """One round over some slots alone; who reads them is told what goes wrong."""
        self._collect()
        with suppress(Exception):
            self._round([s for s in self.slots if s in slots])

    # ---- inside

    def _round(self, slots: Sequence[Slot]) -> None:
        try:
            ran = self.lanes.round(slots)
        except Exception as error:
            _fail(slots, error)
            self._retire()
            raise
        peak = mx.get_peak_memory()
        for slot in ran:
            slot.stats.peak_memory = max(slot.stats.peak_memory, peak)
            self._remember(slot)
        self._retire()

    def _enter(self, slot: Slot, waits: bool) -> Slot:
        """Puts a slot at the end of the line, of which as many begin as there are places."""
        self._collect()
        if not waits:
            self._need_place()
        self._line.append(slot)
        self._admit()
        return slot

    def _admit(self) -> None:
        while self._line and self.memory.free:
            slot = self._line.popleft()
            self.memory.open(slot)
            try:
                self._reuse(slot)
                self._seated(slot)
            except Exception as error:
                self.memory.close(slot)
                _fail([slot], error)  # for its caller, who need not be the one that runs this

    def _seated(self, slot: Slot) -> Slot:
        self.slots.append(slot)
        LOG.debug("slot %d: open with %d ids", slot.place, len(slot.ids))
        slot.begun.set()
        return slot

    def _need_place(self) -> None:
        self._collect()
        if not self.memory.free:
            count = self.memory.caches.slots
            larger = ", or load with a larger max_slots" if count < ROWS else ""
            raise CapacityError(f"all {count} slots are open: close one, or wait=True waits for one{larger}")

    def _retire(self) -> None:
        """Frees passing slots whose reply has ended, so that who waits for a place sees it at once."""
        for slot in [s for s in self.slots if s.passing and s.done]:
            self.close(slot)

    def _collect(self) -> None:
        while self.dropped:
            self.close(self.dropped.popleft())

    def _reuse(self, slot: Slot) -> None:
        """Starts a slot from the longest kept beginning that serves it. A longer one that does not is made whole on the
        way: it is shared, so that later prompts will ask for it."""
        ids, cone = slot.ids[: slot.shareable], self.lanes.config.cone

        def serves(state: Snapshot) -> bool:
            return state.serves(slot.whole_by(state.length + 1), cone)

        shared = self.prefixes.best(ids)
        if shared is None:
            return
        if not serves(shared):
            slot.keep_at = (*slot.keep_at, shared.length)
        state = self.prefixes.best(ids, serves)
        if state is not None:
            self._put(slot, state)

    def _put(self, slot: Slot, state: Snapshot) -> None:
        self.memory.put(slot, state)
        slot.committed = slot.stats.reused_tokens = state.length
        slot.whole_at = min(state.whole_at, slot.whole_by(state.length + 1))

    def _remember(self, slot: Slot) -> None:
        """Keeps what a later prompt may share: every so many prompt tokens, the prompt's end, the reply's end."""
        scores = slot.silent and bool(slot.targets)
        n, last = slot.committed, slot.first_scored if scores else slot.reply_start
        prompt = n == last or n in slot.keep_at or (n < last and n % self.snapshot_tokens == 0)
        if prompt or (slot.done and not scores):
            self._keep(slot)

    def _keep(self, slot: Slot) -> None:
        if (
            self.prefixes.budget
            and slot.committed
            and slot.error is None
            and not self.prefixes.has(slot.ids[: slot.committed], slot.whole_at)
        ):
            self.prefixes.add(self.memory.take(slot))


def _fail(slots: Sequence[Slot], error: Exception) -> None:
    """What went wrong ends the slots that were in it; the engine can open new ones."""
    for slot in slots:
        if not slot.done:
            LOG.warning("slot %d: %s", slot.place, error)
            slot.fail(error)


def _check_ended(slot: Slot) -> None:
    """Raises ValueError unless the slot's reply has ended well."""
    if slot.error is not None:
        raise ValueError(f"this slot failed: {slot.error}")
    if not slot.done:
        raise ValueError("this slot is not finished: let it finish or cancel it first")
