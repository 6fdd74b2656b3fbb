"""Rounds through graphs that are built once a shape: the same tokens and states, and far fewer graphs than rounds."""

from __future__ import annotations

from tensorfold.network.replay import Replay
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
