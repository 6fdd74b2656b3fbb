"""The cone's law: a prompt of which only the last rows run the upper layers gives what one gives that runs them all.

Two small layouts, with windows of 8 rows: so cones are a few chunks. Loads skip the row check, which others test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from tensorfold import loading
from tensorfold.cone import EVERY, Cone
from tensorfold.config import ModelConfig
from tensorfold.engine import save
from tensorfold.engine.engine import Engine
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.schedule import Lane, Schedule
from tensorfold.engine.slot import Slot
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.state.slot_memory import readable
from tensorfold.testing.synthetic import write
from tensorfold.testing.synthetic_config import flat_config
from tests.engine.kit import differences, ids

CHUNK = 8
ALL = 1 << 40
SMALL: dict[str, Any] = {
    "dim": 128, "n_heads": 4, "o_groups": 2, "moe_inter_dim": 64, "q_lora_rank": 64, "n_routed_experts": 6,
    "n_activated_experts": 2, "n_mtp_layers": 1, "window_size": 8, "dspark_n_routed_experts": 4,
}  # fmt: skip
# the last KV source in the middle, with Engram, a tap, windows alone and a reader of candidates behind it
MIDDLE = {
    "n_layers": 6, "compress_ratios": [0, 2, 1, 1, 0, 1, 0], "kv_source_layers": [1, 2],
    "index_source_layers": [1, 2, 3, 5], "candidate_source_layer": 2, "engram_layer_ids": [1, 4],
    "dspark_target_layer_ids": [3, 5],
}  # fmt: skip
# the last layer is a KV source of ratio 2 and has Engram, and taps lie before it
LAST = {
    "n_layers": 4, "compress_ratios": [0, 1, 0, 2, 0], "kv_source_layers": [1, 3], "index_source_layers": [1, 3],
    "candidate_source_layer": 3, "engram_layer_ids": [3], "dspark_target_layer_ids": [0, 2],
}  # fmt: skip
NEEDS = {"middle": [ALL, ALL, 8 + 3 * 7, 8 + 2 * 7, 8 + 7, 8], "last": [ALL, ALL, ALL, 8]}


class Watched:
    """An engine's forwards, with what they gave: logits of every round that had some, how many rows ran a layer, and
    ends and rows of all segments."""

    def __init__(self, engine: Engine):
        self.forward, self.logits = engine.lanes.forward, list[bytes]()
        self.reach, self.pieces = list[tuple[int, ...]](), list[tuple[int, int]]()
        engine.lanes.forward = self

    def __call__(self, plan: Plan, caches: Any) -> Any:
        new = self.forward(plan, caches)
        self.reach.append(plan.reach)
        self.pieces += [(s.start + s.rows, s.rows) for s in plan.segments]
        if new.logits is not None:
            self.logits.append(np.array(new.logits).tobytes())
        return new

    @property
    def rows(self) -> list[int]:
        """Of each layer, in all."""
        return [sum(rows) for rows in zip(*self.reach)]


def made(folder: Path, layout: dict[str, Any], backend: str | None) -> loading.Parts:
    write(folder, {**SMALL, **layout})
    options = loading.Options.check(None, 6, None, backend, 2**26, 2 * CHUNK, "fixed", "auto", "auto", None, False)
    parts = loading.load(folder, options)
    parts.engine.lanes.schedule.chunk, parts.engine.snapshot_tokens = CHUNK, 2 * CHUNK
    return parts


@pytest.fixture(scope="module")
def engines(backend: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Engine]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "keep_rows_apart", lambda *_: None)
        layouts = {"middle": MIDDLE, "last": LAST}
        parts = {name: made(tmp_path_factory.mktemp(name), one, backend) for name, one in layouts.items()}
    yield {name: p.engine for name, p in parts.items()}
    for p in parts.values():
        p.close()


@pytest.fixture
def engine(engines: dict[str, Engine]) -> Iterator[Engine]:
    """The layout with the longest cone, nothing kept and nobody in it."""
    engine = engines["middle"]
    yield from emptied(engine)


def emptied(engine: Engine) -> Iterator[Engine]:
    schedule, cone, forward = engine.lanes.schedule, engine.lanes.config.cone, engine.lanes.forward
    engine.prefixes.clear()
    yield engine
    schedule.cone, engine.lanes.forward = cone, forward
    engine.end()


class Story(NamedTuple):
    """All that may be seen of a reply, round by round from the prompt's end on."""

    logits: list[bytes]
    drafts: list[list[int]]
    tokens: list[int]
    states: list[dict[str, np.ndarray]]
    saved: Any
    rows: list[int]


def state(engine: Engine, slot: Slot) -> dict[str, np.ndarray]:
    return readable(engine.memory.caches, slot)


def story(engine: Engine, prompt: Sequence[int], cone: bool, drafts: int = 3, count: int = 4) -> Story:
    """Of a fresh slot that reuses nothing; without the cone in one chunk, as all chunks are equal."""
    engine.prefixes.clear()
    schedule = engine.lanes.schedule
    schedule.cone, schedule.chunk = (engine.lanes.config.cone, CHUNK) if cone else (None, 128)
    watched = Watched(engine)
    slot = engine.open(prompt, params(count), drafts)
    proposed, states = [], []
    while not slot.done:
        engine.step()
        if slot.committed >= len(prompt):
            proposed.append(list(slot.drafts))
            states.append(state(engine, slot))
    saved = save.take(engine, slot, "cone")
    engine.close(slot)
    schedule.cone, schedule.chunk, engine.lanes.forward = engine.lanes.config.cone, CHUNK, watched.forward
    return Story(watched.logits, proposed, slot.tokens, states, saved, watched.rows)


def params(count: int = 4, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=True, **more)


def finish(engine: Engine) -> None:
    while engine.step():
        pass


def same(a: Story, b: Story) -> bool:
    states = [differences(x, y) for x, y in zip(a.states, b.states, strict=True)]
    saved = a.saved.about == b.saved.about and not differences(a.saved.arrays, b.saved.arrays)
    return (a.logits, a.drafts, a.tokens) == (b.logits, b.drafts, b.tokens) and saved and not any(states)


def expected_rows(length: int, needs: Sequence[int], decoded: int) -> list[int]:
    """Rows that run each layer: of chunks that end within the layer's need of the prompt's end, and of the reply."""
    ends = [*range(CHUNK, length, CHUNK), length]
    starts = [0, *ends[:-1]]
    return [sum(e - s for s, e in zip(starts, ends) if e > length - need) + decoded for need in needs]


@pytest.mark.parametrize("layout", ["middle", "last"])
def test_a_prompt_with_the_cone_equals_one_without(engines, layout):
    """Logits, drafts, tokens, readable rows after every round and what is saved; for prompts of one chunk, and on both
    sides of where each layer begins to be run."""
    needs = NEEDS[layout]
    around = {2 * CHUNK + need + d for need in needs if need < ALL for d in (-1, 0)}
    for engine in emptied(engines[layout]):
        for length in sorted({1, CHUNK, CHUNK + 1, *around}):
            prompt = ids(length, 300)
            part, whole = (story(engine, prompt, cone) for cone in (True, False))
            assert same(part, whole), length
            decoded = whole.rows[0] - length
            assert part.rows == expected_rows(length, needs, decoded) and set(whole.rows) == {length + decoded}, length


def test_a_prompt_after_a_reply_equals_a_fresh_one(engine):
    """One row more, a chunk, and more than the cone: new rows begin where all layers' rows are there."""
    for more in (1, CHUNK, 50):
        engine.prefixes.clear()
        slot = engine.open(ids(40, 301), params(), 3)
        finish(engine)
        engine.extend(slot, ids(more, 302), params(), 2)
        finish(engine)
        fresh = story(engine, [*ids(40, 301), *slot.ids[40 : slot.reply_start]], False, 0)
        assert slot.tokens == fresh.tokens and not differences(state(engine, slot), fresh.states[-1])
        engine.close(slot)


def test_slots_of_all_depths_share_rounds(engine, monkeypatch):
    """One decodes beside three prompts that need the upper layers at different rounds; each row runs its own layers."""
    prompts = [ids(n, 303 + n) for n in (3, 60, 33, 22)]
    alone = [story(engine, prompt, False, 2, 8) for prompt in prompts]
    lanes = Schedule.lanes

    def together(self: Schedule, slots: Sequence[Slot]) -> list[Lane]:
        prompts = [lanes(self, [s])[0] for s in slots if s.pending > 1]
        depth = {None: 6, **{n: n for n in range(6)}}
        deep = sorted(prompts, key=lambda lane: depth[lane.segment.depth], reverse=True)
        return [*lanes(self, [s for s in slots if s.pending == 1]), *deep]

    monkeypatch.setattr(Schedule, "lanes", together)
    engine.prefixes.clear()
    watched = Watched(engine)
    slots = [engine.open(prompts[0], params(8), 2)]
    engine.step()
    slots += [engine.open(prompt, params(8), 2) for prompt in prompts[1:]]
    while not all(s.done for s in slots):
        engine.step()
    for slot, one in zip(slots, alone):
        assert slot.tokens == one.tokens and not differences(state(engine, slot), one.states[-1])
    assert max(len(set(reach)) for reach in watched.reach) >= 4


def test_segments_come_deepest_first_and_heads_run_all_layers(engine):
    config = engine.lanes.config

    def segment(depth: int | None, heads: Sequence[int] = ()) -> Segment:
        return Segment(0, 0, [5, 6], [1], heads, depth=depth)

    for wrong in ([segment(2), segment(None)], [segment(3), segment(1)], [segment(7)]):
        with pytest.raises(ValueError, match="deepest comes first, 2 to 6 layers"):
            Planner(config).build(wrong, 1, 2, engine.lanes.engram([([], [5, 6])] * len(wrong)))
    with pytest.raises(ValueError, match="with heads runs all layers"):
        Planner(config).build([segment(5, [1])], 1, 2)


def test_a_beginning_serves_prompts_that_are_long_enough_and_becomes_whole_when_shared(engine):
    """Kept at 48 of 60 rows without the upper layers: it serves prompts as long as that one and those that end a whole
    cone later; another one makes it whole on its way, and then one row behind it is enough."""
    shared, cone = ids(48, 310), max(n for n in NEEDS["middle"] if n < ALL)
    reused = {}
    for name, more in (
        ("first", 12), ("same", 12), ("longer", 13), ("shorter", 11), ("one row", 1), ("a cone later", cone)
    ):  # fmt: skip
        prompt = [*shared, *ids(more, 311 + more)]
        slot = engine.open(prompt, params(), 2)
        reused[name] = slot.stats.reused_tokens
        finish(engine)
        kept = engine.prefixes
        engine.prefixes = type(kept)(0, 1, engine.memory.drop)  # a fresh one without kept beginnings
        fresh = story(engine, prompt, False, 0)
        engine.prefixes = kept
        assert slot.tokens == fresh.tokens and not differences(state(engine, slot), fresh.states[-1]), name
        engine.close(slot)
    assert reused == {"first": 0, "same": 48, "longer": 48, "shorter": 16, "one row": 48, "a cone later": 48}


def test_an_encoder_only_beginning_serves_a_prompt_that_ends_a_cone_later_alone(engine):
    """16 rows of 100 are kept: for a prompt of 28 rows more the first layer of the cone would have begun before."""
    cone = NEEDS["middle"][2]
    whole = ids(100, 320)
    for more, reused in ((cone - 1, 0), (cone, 16)):
        engine.prefixes.clear()
        engine.open(whole, params(1), 0, passing=True)
        finish(engine)
        slot = engine.open([*whole[:16], *ids(more, 321)], params(), 2)
        assert slot.stats.reused_tokens == reused
        finish(engine)
        tokens, rows, prompt = slot.tokens, state(engine, slot), slot.ids[: slot.reply_start]
        engine.close(slot)
        fresh = story(engine, prompt, False, 0)
        assert tokens == fresh.tokens and not differences(rows, fresh.states[-1])


def test_what_is_remembered_and_what_is_to_be_kept_are_whole(engine):
    """So a prompt one row longer starts from either."""
    beginning = ids(45, 330)
    engine.prefill(beginning)
    finish(engine)
    engine.open([*ids(30, 331), *ids(60, 332)], params(1), 0, passing=True, keep_at=(30,))
    finish(engine)
    for known in (beginning, ids(30, 331)):
        prompt = [*known, 7]
        slot = engine.open(prompt, params(), 3)
        assert slot.stats.reused_tokens == len(known)
        finish(engine)
        tokens, rows = slot.tokens, state(engine, slot)
        engine.close(slot)
        kept, engine.prefixes = engine.prefixes, type(engine.prefixes)(0, 1, engine.memory.drop)
        fresh = story(engine, prompt, False, 0)
        engine.prefixes = kept
        assert tokens == fresh.tokens and not differences(rows, fresh.states[-1])


def test_in_the_middle_of_a_prompt_a_slot_is_forked_saved_cancelled_and_extended(engine, tmp_path):
    """At the end of chunks of 52 rows, of which the last one to four layers of the cone are missing, or none. A file
    holds rows that the prompt will read and no others, whatever was in the place before."""
    prompt, more, file, other = ids(52, 340), ids(9, 341), tmp_path / "slot", tmp_path / "other"
    full, longer = (story(engine, p, False, 0) for p in (prompt, [*prompt, *more]))
    for rounds in (1, 4, 5, 6):
        engine.prefixes.clear()
        first = engine.open(prompt, params(), 3)
        for _ in range(rounds):
            engine.step()
        save.write(file, save.take(engine, first, "cone"))
        saved = save.read(file, "cone", 1)
        assert saved.about.get("whole_at") == first.whole_at == 52 and first.committed == CHUNK * rounds
        twin, again = engine.fork(first, first.params), save.restore(file, saved, engine, 2)
        for slot in (twin, again):
            save.write(other, save.take(engine, slot, "cone"))
            assert file.read_bytes() == other.read_bytes()
        engine.cancel(twin)
        assert twin.tokens == [] and twin.finish_reason == "cancelled"
        engine.extend(twin, more, params(), 2)
        finish(engine)
        for slot, one in ((first, full), (again, full), (twin, longer)):
            assert slot.tokens == one.tokens and not differences(state(engine, slot), one.states[-1]), rounds
            engine.close(slot)


def test_a_file_of_a_prompts_middle_says_for_how_long_a_prompt_it_is(engine, tmp_path):
    slot = engine.open(ids(60, 350), params(), 0)
    engine.step()
    saved = save.take(engine, slot, "cone")
    assert saved.about["whole_at"] == 60 and saved.about["committed"] == CHUNK
    cone = saved.arrays["window"][[2, 3, 4, 5, 6]]
    assert not cone.any() and saved.arrays["window"][:2].any(axis=(1, 2)).all()
    for wrong in (CHUNK, 61, 60.0, True):
        with pytest.raises(save.SaveError, match="whole_at"):
            save.restore(tmp_path / "x", save.Saved({**saved.about, "whole_at": wrong}, saved.arrays), engine, 0)


def test_a_failed_round_in_a_prompt_leaves_the_place_to_others(engine):
    """Case 30: the next slot of the place reads none of its rows."""
    prompt = ids(50, 360)
    fresh = story(engine, prompt, False)

    def fails(*_: Any) -> Any:
        raise RuntimeError("no device")

    engine.prefixes.clear()
    for _ in range(6):  # every place
        slot = engine.open(ids(70, 361), params(), 0)
        for _ in range(3):
            engine.step()
        forward, engine.lanes.forward = engine.lanes.forward, fails
        with pytest.raises(RuntimeError, match="no device"):
            engine.step()
        engine.lanes.forward = forward
        assert slot.finish_reason == "error"
        engine.close(slot)
    assert same(story(engine, prompt, True), fresh)


def test_what_lies_in_a_place_reaches_nobody(engine):
    """Rows at the lower edge of a cone read window rows that were never filled: here every one of them is NaN."""
    prompt = ids(45, 365)
    whole, caches = story(engine, prompt, False), engine.memory.caches
    for layer, ring in enumerate(caches.window):
        caches.put(caches.window, layer, slice(None), mx.full(ring.shape, 255, mx.uint8))
    part = story(engine, prompt, True)
    assert same(part, whole) and part.rows != whole.rows


def test_what_is_scored_runs_all_layers_and_what_lies_before_does_not(engine):
    """`score` and log-probabilities of a continued prompt are those of a full pass; rows before take the cone."""
    prompt, targets = ids(70, 370), ids(9, 371)
    found = []
    for cone in (None, engine.lanes.config.cone):
        engine.prefixes.clear()
        engine.lanes.schedule.cone, watched = cone, Watched(engine)
        slot = engine.score(prompt, targets)
        finish(engine)
        pieces, rows = list(watched.pieces), watched.rows
        asked = engine.open(prompt[:30], params(prompt_logprobs=2), 0)
        finish(engine)
        engine.extend(asked, targets, params(prompt_logprobs=2), 2)
        finish(engine)
        found.append((slot.scores, asked.scores, asked.tokens))
        engine.close(asked)
        engine.lanes.forward = watched.forward
    assert found[0] == found[1] and len(found[0][0]) == len(targets) == len(found[0][1])
    assert rows == [sum(n for end, n in pieces if end > len(prompt) - 1 - need) for need in NEEDS["middle"]]
    assert rows[0] == 78 and rows[-1] == 22


def test_needs_follow_from_the_roles():
    """As published, and where a layout has nothing to leave out."""
    flat = flat_config("published", engram=False, drafter=True, overrides={})
    cone = ModelConfig.from_flat({**flat, "engram_num_embeddings": []}).cone
    assert cone.needs[:20] == (EVERY,) * 20 and cone.needs[20:] == tuple(accumulate([127] * 19, initial=128))[::-1]
    assert cone.needs[20] == 2541 and cone.least == 20 and cone.depth(0) == cone.depth(127) == 40
    assert (cone.depth(128), cone.depth(2540), cone.depth(2541), cone.depth(10**6)) == (39, 21, 20, 20)
    assert cone.readable(2600)[18:22] == [0, 0, 59, 186] and cone.readable(100) == [0] * 40
    one = Cone.of(ModelConfig.from_flat(flat).roles, 1)
    assert set(one.needs[20:]) == {1}
