"""Desk: a loaded model as the rooms of the package see it: its thread, its slots and what a call may ask of them.

Knows no generation: who runs rounds and who waits is in `rounds`, what a user sees in `model`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tensorfold import keywords as kw
from tensorfold import loading
from tensorfold.config import ModelConfig
from tensorfold.engine import save
from tensorfold.engine.engine import Engine
from tensorfold.engine.slot import Slot
from tensorfold.engine.worker import Gone
from tensorfold.handle import SlotHandle
from tensorfold.life import Life
from tensorfold.requests import Reader, Request, nothing
from tensorfold.state import files
from tensorfold.text.tokenizer import Tokenizer

T = TypeVar("T")


class Desk:
    """Checks what calls ask and hands it to the model's own thread. The engine never leaves that thread, so that no
    traceback can hold it."""

    def __init__(self, life: Life):
        self.life = life
        life.run(self._meet)

    def _meet(self, parts: loading.Parts) -> None:
        """Keeps what belongs to the host alone."""
        engine = parts.engine
        self.reader = Reader(parts.tokenizer, parts.config, engine.lanes.drafter is not None)
        self.path, self.max_context = parts.checkpoint.path, engine.max_context
        self.slots, self.dropped = engine.slots, engine.dropped
        self._bars = parts.progress
        self._saves = parts.identity, engine.memory.caches.stages  # what a saved state must be of

    @property
    def tokenizer(self) -> Tokenizer:
        return self.reader.tokenizer

    @property
    def config(self) -> ModelConfig:
        return self.reader.config

    @property
    def shows_bars(self) -> bool:
        """Whether calls of this thread show bars: as the load did, and in the main thread, so that servers' do not."""
        return self._bars and threading.current_thread() is threading.main_thread()

    def alive(self) -> None:
        """Raises RuntimeError if the model is closed, or was loaded in another process."""
        self.life.worker.check()

    def call(self, job: Callable[[Engine], T]) -> T:
        """What a job of the model's own thread gives."""
        return self.life.run(lambda parts: job(parts.engine))

    def step(self) -> bool:
        """One round over all open slots; True while any of them is unfinished."""
        return self.life.round()

    # ---- what is asked

    def read(
        self, prompt: Any, options: Mapping[str, Any], n: Any = None, kind: type = kw.ExtendKeywords
    ) -> tuple[list[Request], bool]:
        """Checked requests, none of them too long for the context, and whether a list is wanted."""
        self.alive()
        requests, many = self.reader.requests(prompt, options, n, kind)
        self.fit(requests)
        return requests, many

    def one(self, prompt: Any, options: Mapping[str, Any], kind: type = kw.ExtendKeywords) -> Request:
        """The checked request of a call that takes one prompt."""
        self.alive()
        requests, many = self.reader.requests(prompt, options, kind=kind)
        if many:
            raise ValueError("one prompt is wanted here, not a list of prompts: open each, or use generate")
        return requests[0]

    def fit(self, requests: Iterable[Request]) -> None:
        """Raises CapacityError for a prompt and reply that are too long for the context."""

        def check(engine: Engine) -> None:
            for r in requests:
                engine.check(r.ids, r.params)

        self.call(check)

    # ---- slots

    def open(self, make: Callable[[Engine], Slot]) -> SlotHandle:
        """A handle that has its slot or stands in line for one, as `make` opens it."""
        made: list[Slot] = []
        try:
            self.call(lambda engine: made.append(make(engine)))
            return SlotHandle(self, made[0])
        except BaseException:
            self.life.worker.post(lambda: self.dropped.extend(made))  # interrupted: nobody holds what was opened
            raise

    def restore(self, path: Path, drafts: int) -> SlotHandle:
        """A slot continued from a file."""
        saved = save.read(path, *self._saves)
        return self.open(lambda engine: save.restore(path, saved, engine, drafts))

    def cancel(self, slot: Slot) -> None:
        """Ends a slot's reply where it is."""
        self.call(lambda engine: engine.cancel(slot))

    def close(self, slot: Slot) -> None:
        """Frees a slot."""
        if self.life.worker.here:
            self.drop(slot)  # a stream that the collector ends there, perhaps in the middle of a round
        else:
            with suppress(Gone):
                self.call(lambda engine: engine.close(slot))

    def drop(self, slot: Slot) -> None:
        """Frees a slot at the next call; from any thread and any finaliser."""
        self.dropped.append(slot)

    def fork(self, slot: Slot, seed: int | None) -> SlotHandle:
        """A twin of a slot."""
        self.alive()
        params = slot.params if seed is None else self.reader.seeded(slot.params, seed)
        return self.open(lambda engine: engine.fork(slot, params))

    def extend(self, slot: Slot, prompt: Any, options: Mapping[str, Any]) -> None:
        """Begins a slot's next reply; without a word, goes on with the one that was cut."""
        if nothing(prompt, options):
            more, drafts = self.reader.more(slot.params, options)
            return self.call(lambda engine: engine.go_on(slot, more, drafts))
        r = self.one(prompt, {"add_bos": False, **options})
        self.call(lambda engine: engine.extend(slot, r.ids, r.params, r.max_drafts))

    def save(self, slot: Slot, path: Path) -> None:
        """Writes a slot to a file."""
        files.check(path)
        save.write(path, self.call(lambda engine: save.take(engine, slot, self._saves[0])))
