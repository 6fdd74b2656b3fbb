"""Rounds through graphs that are built once a shape: the same tokens and states, and far fewer graphs than rounds."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.network.replay import Ahead, Replay
from tensorfold.state.caches import PAGE_TOKENS
from tests.engine.mock import check_state, finish, greedy, make, params

PROMPTS = [[7 + (i * k) % 40 for i in range(n)] for k, n in ((1, 30), (3, 5), (7, 150), (9, 64))]


def test_replayed_rounds_give_the_tokens_of_the_ids_alone():
    """Slots of all lengths join, draft and leave; a graph built for other slots and positions serves."""
    engine = make()
    network = engine.lanes.network
    engine.lanes.forward = Replay(network, engine.lanes.caches)
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
    engine.lanes.forward = Replay(network, engine.lanes.caches)
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
    served, plain = list[bool](), Ahead.filled

    def watched(self: Ahead, arrays):
        made = plain(self, arrays)
        served.append(made is not None)
        return made

    monkeypatch.setattr(Ahead, "filled", watched)
    return served


@pytest.mark.parametrize("drafts", [0, 5])
def test_the_next_graph_is_built_while_the_last_runs(filled: list[bool], drafts: int):
    """Decode rounds run what was built ahead; only a change of shape does not."""
    engine = make()
    engine.lanes.forward = Replay(engine.lanes.network, engine.lanes.caches)
    slot = engine.open(PROMPTS[0], params(60), drafts)
    finish(engine)
    assert slot.tokens == greedy(PROMPTS[0], 60)
    assert sum(filled) >= 0.8 * len(filled) and len(filled) >= 0.7 * slot.stats.rounds
    check_state(engine, slot)


def test_whoever_writes_to_the_caches_lets_go_of_what_was_built_ahead():
    """A slot is forked, one is opened and pages are added between rounds; a stop string takes rows back."""
    engine = make()
    engine.lanes.forward = Replay(engine.lanes.network, engine.lanes.caches)
    caches = engine.lanes.caches
    slot = engine.open(PROMPTS[0], params(90), 5)
    while len(slot.tokens) < 8:
        engine.step()
    assert isinstance(caches.ahead, Ahead)
    twin = engine.fork(slot, params(90))
    assert caches.ahead is None
    for _ in range(3):
        engine.step()
    assert isinstance(caches.ahead, Ahead)
    caches.grow(caches.pages + 1)
    engine.lanes.pages.add(1)
    assert caches.ahead is None
    finish(engine)
    assert slot.tokens == twin.tokens == greedy(PROMPTS[0], 90)
    check_state(engine, slot)
    check_state(engine, twin)


def test_a_slot_filled_between_rounds_is_read_by_the_next():
    """A state that ends with its page is put into a slot by its rings alone, while another slot decodes."""
    engine = make()
    engine.lanes.forward = Replay(engine.lanes.network, engine.lanes.caches)
    whole = engine.open(PROMPTS[2][: PAGE_TOKENS - 8], params(9), 0)
    finish(engine)
    assert whole.committed == PAGE_TOKENS
    other = engine.open(PROMPTS[1], params(60), 0)
    for _ in range(9):
        engine.step()
    assert isinstance(engine.lanes.caches.ahead, Ahead)
    twin = engine.fork(whole, params(9))
    assert engine.lanes.caches.ahead is None
    engine.extend(twin, [77], params(30), 0)
    finish(engine)
    assert other.tokens == greedy(PROMPTS[1], 60) and twin.tokens == greedy([*whole.ids, 77], 30)


def test_values_of_a_plan_are_put_where_the_graph_reads_them():
    """Filled arrays decide what was made of them; other shapes are refused."""
    given = [mx.zeros((2, 3)), mx.array(np.zeros(4, np.int32)), mx.zeros((0, 2), mx.int32)]
    mx.eval(given)
    ahead = Ahead(given, [given[0] + 1, given[1] * 2])
    new = [mx.full((2, 3), 5.0), mx.array([1, 2, 3, 4], mx.int32), mx.zeros((0, 2), mx.int32)]
    assert ahead.filled([new[0][:1], *new[1:]]) is None
    made = ahead.filled(new)
    assert made is not None and made[0].tolist() == [[6.0] * 3] * 2 and made[1].tolist() == [2, 4, 6, 8]
