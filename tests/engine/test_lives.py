"""Any life of slots, from open to drop through forks, cancels and restores, leaves every row and token right."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tensorfold.engine.engine import CapacityError, Engine
from tensorfold.engine.slot import Slot
from tensorfold.state.caches import SPARE_PAGE
from tests.engine.mock import MockDrafter, check_state, greedy, make, params, restore_slot, save_slot

BASE = [5 + (i * i + i // 7) % 90 for i in range(330)]


def check_pages(engine: Engine) -> None:
    """Every page is held exactly as often as slots and kept beginnings name it."""
    held: Counter[int] = Counter()
    for s in engine.slots:
        held.update(s.pages)
    for snapshot, _ in engine.prefixes._kept.values():
        held.update(snapshot.pages)
    pages = engine.memory.pages
    assert pages._held == [held[p] for p in range(pages.count)]
    assert sorted(pages._free) == [p for p in range(pages.count) if not held[p] and p != SPARE_PAGE]
    own = Counter(p for s in engine.slots for i, p in enumerate(s.pages) if (i + 1) * 128 > s.committed)
    assert all(count == 1 for count in own.values()), "two slots would write one page"


class Life:
    """Random deeds over one engine; each returns quietly when it does not apply."""

    def __init__(self, seed: int, prefix_bytes: int, folder: Path):
        self.rng, self.folder = random.Random(seed), folder
        self.engine = make(5, MockDrafter(seed % 4), prefix_bytes)

    def pick(self, wanted) -> Slot | None:
        assert self.engine.free + len(self.engine.slots) == 5  # frees what was dropped: nobody holds it any more
        found = [s for s in self.engine.slots if wanted(s)]
        return self.rng.choice(found) if found else None

    def choices(self):
        return params(self.rng.choice((1, 2, 7, 30)), stop=self.rng.choice(((), ("q",), ("ab", "zz"))))

    def open(self):
        cut = self.rng.choice((1, 40, 47, 48, 49, 96, 127, 128, 129, 150, 255, 256, 257, 300))
        prompt = BASE[:cut] + [self.rng.randrange(3, 100) for _ in range(self.rng.randrange(4))]
        self.engine.open(prompt, self.choices(), self.rng.randrange(6))

    def step(self):
        for _ in range(self.rng.randrange(1, 8)):
            self.engine.step()

    def cancel(self):
        if slot := self.pick(lambda s: not s.done):
            self.engine.cancel(slot)

    def close(self):
        if slot := self.pick(lambda s: True):
            self.rng.choice((self.engine.close, self.engine.dropped.append))(slot)

    def fork(self):
        if slot := self.pick(lambda s: True):
            self.engine.fork(slot, slot.params)

    def extend(self):
        if slot := self.pick(lambda s: s.done and len(s.ids) < 600):
            more = [self.rng.randrange(3, 100) for _ in range(self.rng.randrange(1, 60))]
            self.engine.extend(slot, more, self.choices(), self.rng.randrange(6))

    def move(self):
        if slot := self.pick(lambda s: True):
            save_slot(self.folder / "slot", self.engine, slot)
            if self.rng.random() < 0.5:
                self.engine.close(slot)
            restore_slot(self.folder / "slot", self.engine, self.rng.randrange(6))

    def remember(self):
        slot = self.engine.prefill(BASE[: self.rng.choice((30, 64, 128, 200))])
        while not slot.done:
            self.engine.step()

    def check(self):
        for slot in self.engine.slots:
            check_state(self.engine, slot)
            assert slot.tokens == greedy(slot.ids[: slot.reply_start], len(slot.tokens))
            if slot.finish_reason == "length":
                assert len(slot.tokens) == slot.params.max_tokens
        check_pages(self.engine)


@pytest.mark.parametrize("prefix_bytes", [0, 200_000, 2**26], ids=["none", "little", "much"])
@pytest.mark.parametrize("seed", range(4))
def test_every_life_keeps_every_row_right(seed, prefix_bytes, tmp_path):
    """Cases 2, 25, 30, 32 and 34 in every order of deeds; the rows are told from the ids alone."""
    life = Life(seed, prefix_bytes, tmp_path)
    deeds = (
        [life.open] * 3 + [life.step] * 5 + [life.cancel, life.close, life.fork, life.extend, life.extend, life.move]
    )
    deeds += [life.remember] if prefix_bytes else []
    for _ in range(110):
        try:
            life.rng.choice(deeds)()
        except CapacityError:
            life.close()
        life.check()
    for slot in list(life.engine.slots):
        life.engine.close(slot)
    life.engine.prefixes.clear()
    check_pages(life.engine)
    assert life.engine.free == 5
