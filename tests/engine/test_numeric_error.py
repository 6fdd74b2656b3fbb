"""Logits that are not finite end their slot alone; the others and the next request never notice."""

from __future__ import annotations

import mlx.core as mx
import pytest

from tensorfold import NumericError
from tests.engine.kit import differences, ids, run, sampling, state

NAN_SCALE = 255


def spoil(model, handle, layer: int = 2) -> None:
    """Writes a NaN scale into the newest window row of the slot."""
    slot, caches = handle._slot, model._engine.memory.caches
    width, dim = caches.config.sliding_window, caches.config.head_dim

    def write():
        row = slot.place * width + (slot.committed - 1) % width
        caches.window[layer][row, dim:] = mx.array(NAN_SCALE, mx.uint8)

    model._life.worker.run(write)


@pytest.mark.parametrize("width", [0, 5])
def test_one_bad_row_ends_one_slot(calm, alone, width):
    options = [sampling(1), sampling(0), sampling(2)]
    prompts = [ids(24, 110), ids(18, 111), ids(33, 112)]
    want = [alone(p, 16, **o) for p, o in zip(prompts, options)]
    next_want = alone(prompts[0][:19], 12, **sampling(0))
    handles = [calm.open(p, max_tokens=16, max_drafts=width, **o) for p, o in zip(prompts, options)]
    while len(handles[0].tokens) < 4:
        calm.step()
    bad = handles[0]
    before, position = bad.tokens, bad._slot.committed
    spoil(calm, bad)
    calm.step()
    assert bad.done and bad.finish_reason == "error" and bad.tokens == before == want[0][: len(before)]
    assert isinstance(bad.error, NumericError)
    assert f"position {position} " in str(bad.error) and "after layer 2" in str(bad.error)
    place = bad._slot.place
    for attempt in (bad.fork, lambda: bad.extend([4]), lambda: bad.save("never")):
        with pytest.raises(ValueError, match="failed"):
            attempt()
    bad.close()
    after = calm.open(prompts[0][:19], max_tokens=12, max_drafts=width, **sampling(0))
    places = {h._slot.place for h in handles[1:]} | {after._slot.place}
    run(calm, after, *handles[1:])
    assert [h.tokens for h in handles[1:]] == want[1:] and after.tokens == next_want
    if place not in places:  # the spoilt place itself is used in turn
        others = [calm.open(prompts[0][:19], max_tokens=12, **sampling(0)) for _ in range(calm._engine.free)]
        assert place in {h._slot.place for h in others}
        again = next(h for h in others if h._slot.place == place)
        for h in others:
            if h is not again:
                h.close()
        run(calm, again)
        assert again.tokens == next_want and differences(state(again), state(after)) == []


def test_generate_raises_what_ended_its_slot(calm):
    """A caller gets the error itself, and the next call works."""
    real = calm._engine.lanes.network.head

    def head(x, pre):
        return real(x, pre) * mx.nan

    head.logits = real.logits
    calm._engine.lanes.network.head = head
    try:
        with pytest.raises(NumericError, match="at the head"):
            calm.generate(ids(5), max_tokens=2)
    finally:
        calm._engine.lanes.network.head = real
    assert len(calm.generate(ids(5), max_tokens=2, seed=0).tokens) == 2
    assert not calm._engine.slots
