"""Rounds through graphs that are built once a shape: the same tokens and states, and far fewer graphs than rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.engine.engine import Engine
from tensorfold.network.replay import Prepared, Replay
from tensorfold.state.caches import PAGE_TOKENS
from tests.engine.mock import check_state, engram_rows, finish, greedy, make, params, restore_slot, save_slot

PROMPTS = [[7 + (i * k) % 40 for i in range(n)] for k, n in ((1, 30), (3, 5), (7, 150), (9, 64))]


def test_replayed_rounds_give_the_tokens_of_the_ids_alone():
    """Slots of all lengths join, draft and leave; a graph built for other slots and positions serves."""
    engine = make()
    network = engine.lanes.network
    engine.lanes.forward = Replay(network, engine.memory.caches)
    for width in (0, 2, 5):
        slots = [engine.open(p, params(40 + 3 * i), width) for i, p in enumerate(PROMPTS)]
        finish(engine)
        for slot, prompt in zip(slots, PROMPTS):
            assert slot.tokens == greedy(prompt, len(slot.tokens)) and slot.finish_reason == "length"
            check_state(engine, slot)
            engine.close(slot)


def test_a_graph_is_built_once_for_a_shape():
    engine = make()
    network = engine.lanes.network
    engine.lanes.forward = Replay(network, engine.memory.caches)
    slot = engine.open(PROMPTS[0], params(60), 0)
    finish(engine)
    built = network.forwards
    assert slot.stats.forwards > 60 and built <= 6  # chunks, and a closing group or none
    engine.close(slot)
    again = engine.open(PROMPTS[0], params(60), 0)
    finish(engine)
    assert again.tokens == slot.tokens and network.forwards == built


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each graph that was built ahead and asked for: whether it served."""
    served, plain = list[bool](), Prepared.filled

    def watched(self: Prepared, arrays):
        made = plain(self, arrays)
        served.append(made is not None)
        return made

    monkeypatch.setattr(Prepared, "filled", watched)
    return served


def replaying(**options) -> Engine:
    """An engine whose rounds are replayed graphs."""
    engine = make(**options)
    engine.lanes.forward = Replay(engine.lanes.network, engine.memory.caches)
    return engine


@pytest.mark.parametrize("drafts", [0, 5])
def test_the_next_graph_is_built_while_the_last_runs(filled: list[bool], drafts: int):
    """Decode rounds run what was built ahead; only a change of shape does not."""
    engine = replaying()
    slot = engine.open(PROMPTS[0], params(PAGE_TOKENS), drafts)
    finish(engine)
    assert slot.tokens == greedy(PROMPTS[0], PAGE_TOKENS)
    assert sum(filled) >= 0.8 * len(filled) and len(filled) >= 0.7 * slot.stats.rounds
    check_state(engine, slot)


@pytest.mark.parametrize("drafts", [0, 5])
def test_engram_rows_are_those_of_the_round(filled: list[bool], drafts: int):
    """Their bytes reach a graph that was built before the tokens were known."""
    plain, replayed = make(engram=engram_rows), replaying(engram=engram_rows)
    tokens = []
    for engine in (plain, replayed):
        slots = [engine.open(p, params(50), drafts) for p in PROMPTS[:3]]
        finish(engine)
        tokens.append([slot.tokens for slot in slots])
    assert tokens[0] == tokens[1] and tokens[0][0] != greedy(PROMPTS[0], 50) and any(filled)


def test_whoever_writes_to_the_caches_lets_go_of_what_was_built_ahead(tmp_path: Path):
    """Between rounds a slot is forked, one is restored and pages are added; a stop string takes rows back."""
    engine = replaying(slots=6)
    caches, written = engine.memory.caches, greedy(PROMPTS[0], 90)
    stop = "".join(chr(token - 3) for token in written[40:42])
    slot = engine.open(PROMPTS[0], params(90), 5)
    stopped = engine.open(PROMPTS[0], params(90, stop=(stop,)), 5)
    while len(stopped.tokens) < 7:
        engine.step()
    save_slot(tmp_path / "slot", engine, slot)
    changes = {
        "fork": lambda: engine.fork(slot, params(90)),
        "restore": lambda: restore_slot(tmp_path / "slot", engine, 5),
        "pages": lambda: caches.grow(caches.pages + 1) or engine.memory.pages.add(1),
    }
    for change in changes.values():
        assert isinstance(caches.prepared, Prepared)
        change()
        assert caches.prepared is None
        engine.step()
    while not stopped.done:
        engine.step()
    assert stopped.finish_reason == "stop" and caches.prepared is None
    engine.extend(stopped, [], params(20), 5)
    finish(engine)
    for one in engine.slots:
        assert one.tokens == greedy(one.ids[: one.reply_start], len(one.tokens))
        check_state(engine, one)


def test_a_slot_filled_between_rounds_is_read_by_the_next():
    """A state that ends with its page is put into a slot by its rings alone, while another slot decodes."""
    engine = replaying()
    whole = engine.open(PROMPTS[2][: PAGE_TOKENS - 8], params(9), 0)
    finish(engine)
    assert whole.committed == PAGE_TOKENS
    other = engine.open(PROMPTS[1], params(60), 0)
    for _ in range(9):
        engine.step()
    assert isinstance(engine.memory.caches.prepared, Prepared)
    twin = engine.fork(whole, params(9))
    assert engine.memory.caches.prepared is None
    engine.extend(twin, [77], params(30), 0)
    finish(engine)
    assert other.tokens == greedy(PROMPTS[1], 60) and twin.tokens == greedy([*whole.ids, 77], 30)


def most_taken(run: Callable[[], object]) -> int:
    """The most bytes that a call took beyond what was there before it."""
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    run()
    mx.synchronize()
    return mx.get_peak_memory() - before


@pytest.mark.parametrize("whole", [True, False], ids=["whole pages", "part of a page"])
def test_no_round_no_fork_and_no_restore_copies_a_pool(tmp_path: Path, whole: bool):
    """Whatever a round's graph holds, who writes to a pool does so in place."""
    engine = replaying(slots=5)
    caches = engine.memory.caches
    caches.grow(2000)
    engine.memory.pages.add(2000 - engine.memory.pages.count)
    done = engine.open(PROMPTS[2][: PAGE_TOKENS - (8 if whole else 20)], params(9), 0)
    finish(engine)
    save_slot(tmp_path / "slot", engine, done)
    slot = engine.open(PROMPTS[0], params(200), 5)
    for _ in range(6):
        engine.step()
    pool = min(a.nbytes for a in [*caches.rows.values(), *caches.keys.values()])

    def rounds() -> None:
        for _ in range(4):
            engine.step()

    took = {"rounds": most_taken(rounds)}
    took["restore"] = most_taken(lambda: restore_slot(tmp_path / "slot", engine, 0))
    rounds()
    took["fork"] = most_taken(lambda: engine.fork(slot, params(200)))
    assert max(took.values()) < pool // 2, (took, pool)


def test_values_of_a_plan_are_put_where_the_graph_reads_them():
    """Filled arrays decide what was made of them; other shapes are refused."""
    given = [mx.zeros((2, 3)), mx.array(np.zeros(4, np.int32)), mx.zeros((0, 2), mx.int32)]
    mx.eval(given)
    prepared = Prepared(given, [given[0] + 1, given[1] * 2])
    new = [mx.full((2, 3), 5.0), mx.array([1, 2, 3, 4], mx.int32), mx.zeros((0, 2), mx.int32)]
    assert prepared.filled([new[0][:1], *new[1:]]) is None
    made = prepared.filled(new)
    assert made is not None and made[0].tolist() == [[6.0] * 3] * 2 and made[1].tolist() == [2, 4, 6, 8]
