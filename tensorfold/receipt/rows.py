"""The row law on the network: equal bits in logits and readable cache rows however rows share launches. Draws nothing.

Every check has one truth: the rows of one slot, one launch each, after a prompt of PREFIX ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tensorfold.engine import schedule
from tensorfold.network.replay import Replay
from tensorfold.network.row_check import row_dependent_operations
from tensorfold.receipt.finding import Finding, holds
from tensorfold.receipt.runner import Computed, ForwardCall, Runner, Session

CHUNK = 64
PREFIX = 120  # a bucket of compressed rows ends at 64 and 128, a page at 128
STEPS, WIDTH = 8, 4
ROWS = STEPS * WIDTH


def some_ids(count: int, salt: int, vocab: int) -> list[int]:
    """Ids without a pattern, the same on every machine."""
    return [3 + (7919 * i + 104729 * salt + i * i * (salt + 5) // 3) % (vocab - 8) for i in range(count)]


class RowLaw:
    """The checks of one checkpoint on one backend."""

    def __init__(self, runner: Runner):
        self.runner = runner
        self.ids = some_ids(PREFIX + ROWS, 0, runner.config.vocab_size)

    def prefix(self, call: ForwardCall | None = None) -> Session:
        """One slot after its prompt, which was two chunks."""
        session = Session(self.runner, [self.ids], call)
        session([CHUNK], [[]]), session([PREFIX - CHUNK], [[]])
        return session

    @cached_property
    def begun(self) -> Session:
        return self.prefix()

    @cached_property
    def alone(self) -> list[Computed]:
        """After each of ROWS rows that had a launch each: all logits since the prompt, and the state."""
        session, logits, out = self.begun.fork(), list[np.ndarray](), list[Computed]()
        for _ in range(ROWS):
            logits += session([1])
            out.append(Computed(np.concatenate(logits), session.rows(0)))
        return out

    def one_launch(self, counts: Sequence[int] = range(1, schedule.ROWS + 1)) -> Finding:
        """R rows in one launch equal one at a time."""
        broken = []
        for count in counts:
            session = self.begun.fork()
            got = Computed(session([count])[0], session.rows(0))
            broken += _apart(f"{count} rows", got, self.alone[count - 1])
        return holds("R rows in one launch equal one at a time", broken, f"R = {', '.join(map(str, counts))}")

    def decode_steps(self) -> Finding:
        """Steps of several rows, each committed, equal steps of one row."""
        session = self.begun.fork()
        got = Computed(np.concatenate([session([WIDTH])[0] for _ in range(STEPS)]), session.rows(0))
        name = f"{STEPS} decode steps at {WIDTH} rows a launch equal one row a launch"
        return holds(name, _apart("the steps", got, self.alone[-1]), f"positions {PREFIX} to {PREFIX + ROWS - 1}")

    def several_slots(self) -> Finding:
        """Rows of three slots of different lengths in one launch equal each slot alone."""
        lengths, launches = (38, 3, 21), ((3, 11, 2), (1, 1, 1), (0, 4, 5))
        totals = [sum(parts) for parts in zip(lengths, *launches)]
        ids = [some_ids(n, 1 + i, self.runner.config.vocab_size) for i, n in enumerate(totals)]
        session, logits = Session(self.runner, ids), [list[np.ndarray]() for _ in ids]
        for i, length in enumerate(lengths):
            session([length * (i == j) for j in range(3)], [[]] * 3)
        for counts in launches:
            for i, part in zip([i for i, n in enumerate(counts) if n], session(counts)):
                logits[i].append(part)
        broken = []
        for i, (length, some) in enumerate(zip(lengths, ids)):
            alone = self.runner(some, [length, *(n[i] for n in launches if n[i])], range(length, len(some)))
            broken += _apart(f"the slot of {length} ids", Computed(np.concatenate(logits[i]), session.rows(i)), alone)
        return holds("rows of 3 slots in one launch equal each alone", broken, f"slots of {lengths} ids")

    def prompt(self, length: int = 0) -> Finding:
        """All ids in one chunk equal the two chunks and rows alone; and `length` ids in chunks equal ids one by one."""
        count = len(self.ids)
        got = self.runner(self.ids, count, range(PREFIX, count))
        broken = _apart(f"a chunk of {count}", got, self.alone[-1])
        if length:
            ids = some_ids(length, 4, self.runner.config.vocab_size)
            decoded = self.runner(ids, 1)
            for chunk in (length, CHUNK):
                broken += _apart(f"{length} ids in chunks of {chunk}", self.runner(ids, chunk), decoded)
        more = f"; {length} ids in one chunk, in chunks of {CHUNK}, one by one" if length else ""
        return holds("prompt rows equal decode rows", broken, f"{count} ids whole, or in chunks and rows{more}")

    def replayed(self, call: ForwardCall | None = None) -> Finding:
        """Graphs that are built once and replayed equal the plain call, the prompt's too; `call` stands for them."""
        session = self.prefix(call or Replay(self.runner.network, self.begun.caches))
        got = Computed(np.concatenate([session([WIDTH])[0] for _ in range(STEPS)]), session.rows(0))
        broken = _apart("the replayed steps", got, self.alone[-1])
        return holds("replayed graphs equal the plain call", broken, f"{STEPS} steps over a change of the bucket")

    def row_check(self) -> Finding:
        """The row check at load finds nothing."""
        found = row_dependent_operations(self.runner.network, self.runner.engram.gather)
        return holds("the row check at load finds nothing", sorted(found), "one layer of each role, 6 rows of 3 slots")

    def digests(self) -> dict[str, str]:
        """SHA-256 of the float32 logits of the rows alone, and of the state after them."""
        run = self.alone[-1]
        state = hashlib.sha256()
        for name, rows in sorted(run.rows.items()):
            state.update(f"{name} {rows.dtype} {rows.shape} ".encode() + np.ascontiguousarray(rows).tobytes())
        return {"logits": hashlib.sha256(run.logits.tobytes()).hexdigest(), "state": state.hexdigest()}


def _apart(what: str, got: Computed, wanted: Computed) -> list[str]:
    names = got.differences(wanted)
    return [f"{what}: other bits in {', '.join(names)}"] if names else []
