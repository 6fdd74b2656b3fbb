"""Saved slots: equal states give equal files; a file is whole, right and for this checkpoint, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from tensorfold import CapacityError, Model, SaveError
from tensorfold.engine import save
from tensorfold.engine.params import SamplingParams
from tensorfold.state.caches import Caches
from tests.engine.kit import CALM, ROOT, ids, run, sampling
from tests.engine.mock import MockDrafter, check_state, finish, greedy, make, params, restore_slot, save_slot

PROMPT = ids(20, 120)


@pytest.fixture(scope="module")
def saved(calm, tmp_path_factory):
    """A drafted and a plain slot of the same ids, saved."""
    folder = tmp_path_factory.mktemp("saved")
    handles = [calm.open(PROMPT, max_tokens=9, max_drafts=w, **sampling(1)) for w in (5, 0)]
    run(calm, *handles)
    for handle, name in zip(handles, ("drafted", "plain")):
        handle.save(folder / name)
        handle.close()
    return folder


def test_equal_states_give_equal_files(calm, saved):
    """State law: after rejected and accepted drafts the file is that of a slot never drafted;
    restored, it is saved as it was."""
    drafted = (saved / "drafted").read_bytes()
    assert drafted == (saved / "plain").read_bytes()
    with calm.restore(saved / "drafted") as again:
        again.save(saved / "again")
    assert drafted == (saved / "again").read_bytes()


def test_a_greedy_slot_is_the_same_under_any_seed(calm, saved):
    for name, seed in (("a", 1), ("b", None)):
        with calm.open(PROMPT, max_tokens=3, seed=seed) as handle:
            run(calm, handle)
            handle.save(saved / name)
    assert (saved / "a").read_bytes() == (saved / "b").read_bytes()


def test_a_cut_file_is_refused(calm, saved):
    """Case 34: cut at every twentieth, and by one byte."""
    data, path = (saved / "plain").read_bytes(), saved / "cut"
    for size in [len(data) * i // 20 for i in range(20)] + [len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(SaveError, match="cut"):
            calm.restore(path)
    assert not calm._engine.slots


def test_an_altered_byte_is_refused_wherever_it_is(calm, saved):
    """Case 34: header, settings and rows; no page and no slot is lost on the way."""
    data, path = (saved / "plain").read_bytes(), saved / "altered"
    header = 8 + int.from_bytes(data[:8], "little")
    pages = calm._engine.memory.pages
    calm.restore(saved / "plain").close()
    free = pages.free
    for at in [*range(0, header, 9), *range(header, len(data), len(data) // 60), len(data) - 1]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(SaveError):
            calm.restore(path)
    assert pages.free == free and not calm._engine.slots


def test_a_lengthened_file_and_other_files_are_refused(calm, saved):
    path = saved / "other"
    shard = next(CALM.glob("*.safetensors")).read_bytes()
    for data in ((saved / "plain").read_bytes() + b"\0", b"", b"not a state at all", shard):
        path.write_bytes(data)
        with pytest.raises(SaveError):
            calm.restore(path)
    with pytest.raises(FileNotFoundError):
        calm.restore(saved / "missing")


def test_another_checkpoint_refuses_it(trained, saved):
    with pytest.raises(SaveError, match="another checkpoint"):
        trained.restore(saved / "plain")


def test_a_model_of_other_make_refuses_it_by_name(saved):
    """Without the drafter's rings, or with less room than the slot needs; nothing is computed or kept."""
    with Model.load(CALM, draft=False, max_context=25, prefix_bytes=0) as model:
        with pytest.raises(SaveError, match="with its drafter"):
            model.restore(saved / "plain")
        short = model.open(PROMPT, max_tokens=3)
        run(model, short)
        short.save(saved / "short")
    with Model.load(CALM, draft=False, max_context=22, prefix_bytes=0) as model:
        with pytest.raises(CapacityError, match="the context holds 22"):
            model.restore(saved / "short")
        assert not model._engine.slots
    with Model.load(CALM, prefix_bytes=0) as model, pytest.raises(SaveError, match="draft=False"):
        model.restore(saved / "short")


def test_a_full_house_refuses_it_and_loses_nothing(tmp_path):
    engine = make(slots=1)
    slot = engine.open(PROMPT, params(5), 0)
    finish(engine)
    save_slot(tmp_path / "slot", engine, slot)
    free = engine.memory.pages.free
    with pytest.raises(CapacityError):
        restore_slot(tmp_path / "slot", engine, 0)
    assert engine.memory.pages.free + 1 >= free and engine.slots == [slot]
    engine.close(slot)
    again = restore_slot(tmp_path / "slot", engine, 5)
    check_state(engine, again)
    assert again.tokens == greedy(PROMPT, 5)


def header(path) -> dict:
    data = path.read_bytes()
    return json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["tensorfold"])


def test_choices_that_came_later_are_written_where_they_were_made(tmp_path):
    """A file from before is one without them: each is then at its default."""
    engine = make(slots=4)
    first = "max_tokens temperature top_p top_k min_p repetition_penalty logit_bias stop seed logprobs".split()
    later = {"presence_penalty": -0.5, "frequency_penalty": 1.5, "stop_token_ids": (7, 9), "ignore_eos": True}
    later |= {"min_tokens": 2, "prompt_logprobs": 1, "skip_special_tokens": False}
    assert {*first, *later} == {f.name for f in fields(SamplingParams)}
    for more, names in (({}, first), (later, [*first, *later])):
        slot = engine.open(PROMPT, params(5, **more), 3)
        engine.step(), engine.step()
        save_slot(tmp_path / "slot", engine, slot)
        assert sorted(header(tmp_path / "slot")["params"]) == sorted(names)
        assert ("prompt" in header(tmp_path / "slot")) == bool(more)
        again = restore_slot(tmp_path / "slot", engine, 3)
        assert again.params == slot.params and again.scores == slot.scores and bool(again.scores) == bool(more)
        finish(engine)
        assert again.tokens == slot.tokens
        engine.close(slot), engine.close(again)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        {"first": 1},
        {"first": 20, "logprobs": []},
        {"first": True},
        {"more": 1},
        {"logprobs": []},
        {"logprobs": [[0, []]] * 19},
    ],
)
def test_a_prompts_log_probabilities_are_whole_or_refused(prompt, tmp_path):
    engine = make()
    slot = engine.open(PROMPT, params(5, prompt_logprobs=1), 3)
    engine.step(), engine.step()
    taken = save.take(engine, slot, "mock")
    good = taken.about["prompt"]
    save.restore(tmp_path, taken, engine, 0)
    taken.about["prompt"] = None if prompt is None else {**good, **prompt}
    with pytest.raises(SaveError):
        save.restore(tmp_path, taken, engine, 0)
    del taken.about["prompt"]
    with pytest.raises(SaveError):
        save.restore(tmp_path, taken, engine, 0)


def test_a_restore_that_breaks_off_gives_its_pages_back(tmp_path, monkeypatch):
    engine = make(slots=2)
    slot = engine.open(PROMPT, params(5), 0)
    finish(engine)
    save_slot(tmp_path / "slot", engine, slot)
    held = engine.memory.pages.count - engine.memory.pages.free

    def refuse(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(Caches, "put", refuse)
    with pytest.raises(MemoryError):
        restore_slot(tmp_path / "slot", engine, 0)
    assert engine.memory.pages.count - engine.memory.pages.free == held and engine.slots == [slot]


DIES = """
import os, sys
from pathlib import Path
from tests.engine.mock import make, params, finish, save_slot
engine = make(slots=1)
slot = engine.open([5, 6, 7], params(3), 0)
finish(engine)
os.replace = lambda *a: os._exit(9)
save_slot(Path(sys.argv[1]), engine, slot)
"""


def test_a_save_that_is_killed_or_fails_leaves_the_old_file(calm, saved, tmp_path, monkeypatch):
    """Case 34: killed just before the new file takes its place, and refused by the disk."""
    path = tmp_path / "slot"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", DIES, str(path)], cwd=ROOT, capture_output=True)
    assert done.returncode == 9, done.stderr
    assert path.read_bytes() == b"old"

    def full(*_):
        raise OSError("disk full")

    with calm.restore(saved / "plain") as handle:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="disk full"):
            handle.save(path)
        monkeypatch.undo()
        assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]  # the killed one's part went, too
        handle.save(path)
    assert path.read_bytes() == (saved / "plain").read_bytes()


WRITES = """
import os, resource, signal, sys
from pathlib import Path
from tests.engine.mock import make, params, finish, save_slot
engine = make(slots=1)
slot = engine.open([5, 6, 7], params(3), 0)
finish(engine)
path, how = Path(sys.argv[1]), sys.argv[2]
if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
fdopen = os.fdopen
def half(fd, mode):
    file = fdopen(fd, mode, buffering=0)
    write = file.write
    class Torn:
        def __enter__(self): return self
        def __exit__(self, *a): file.close()
        def write(self, data):
            write(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
    return Torn()
if how == "killed":
    os.fdopen = half
try:
    save_slot(path, engine, slot)
except OSError as error:
    print(error.strerror)
    sys.exit(3)
"""


@pytest.mark.parametrize("how,code", [("full", 3), ("killed", -9)])
def test_a_save_that_the_disk_or_the_system_stops_in_the_middle_leaves_the_old_file(how, code, tmp_path, calm, saved):
    """The operating system refuses to write on after 1000 bytes, or the process is killed with half of them written;
    the torn half is no state."""
    path = tmp_path / "slot"
    path.write_bytes((saved / "plain").read_bytes())
    done = subprocess.run([sys.executable, "-c", WRITES, str(path), how], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    calm.restore(path).close()
    torn = [p for p in tmp_path.iterdir() if p != path]
    assert len(torn) == (how == "killed")
    for part in torn:
        assert part.stat().st_size > 0
        with pytest.raises(SaveError):
            calm.restore(part)


@pytest.mark.parametrize("committed", [0, 1, 15, 16, 17, 127, 128, 129])
def test_every_length_comes_back(committed, tmp_path):
    engine = make(slots=2, drafter=MockDrafter(3), chunk=1)
    slot = engine.open([7 + i % 50 for i in range(130)], params(6), 3)
    for _ in range(committed):
        engine.step()
    save_slot(tmp_path / "slot", engine, slot)
    again = restore_slot(tmp_path / "slot", engine, 2)
    assert again.committed == committed
    check_state(engine, again)
    finish(engine)
    assert again.tokens == slot.tokens == greedy(slot.ids[:130], 6)


def test_a_sound_file_of_another_config_drafter_or_length_is_refused(tmp_path):
    """Its checksum is right: each thing it must be of is looked at by itself."""
    engine = make(slots=2, drafter=MockDrafter(3))
    slot = engine.open([7 + i % 50 for i in range(20)], params(6), 3)
    finish(engine)
    saved = save.take(engine, slot, "mock")
    n, path = len(slot.ids), tmp_path / "slot"
    for change in ({"config": "0" * 64}, {"committed": n + 1}, {"reply_start": n + 1}, {"reply_start": 0}):
        save.write(path, save.Saved({**saved.about, **change}, saved.arrays))
        with pytest.raises(SaveError, match="not a whole saved state"):
            restore_slot(path, engine, 3)
    short = saved.arrays["ids"][: saved.about["committed"] - 1]  # more is in the caches than there are ids
    save.write(path, save.Saved(saved.about, {**saved.arrays, "ids": short}))
    with pytest.raises(SaveError, match=f"committed {len(short) + 1} and reply_start 20 do not fit {len(short)} ids"):
        restore_slot(path, engine, 3)
    for stages in (saved.about["stages"] + 1, saved.about["stages"] + 2):
        save.write(path, save.Saved({**saved.about, "stages": stages}, saved.arrays))
        with pytest.raises(SaveError, match="its drafter"):
            restore_slot(path, engine, 3)
    save.write(path, saved)
    assert restore_slot(path, engine, 3).ids == slot.ids


def test_a_checksum_covers_names_types_and_shapes():
    plain = np.arange(6, dtype=np.int32)
    arrays = [{"a": plain}, {"b": plain}, {"a": plain.view(np.float32)}, {"a": plain.reshape(2, 3)}, {"a": plain[::-1]}]
    digests = {save._digest({"x": 1}, given) for given in arrays} | {save._digest({"x": 2}, arrays[0])}
    assert len(digests) == 6
