"""Threads and the end of a model: calls from anywhere, memory given back."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest

from tensorfold import Model
from tests.engine.kit import CALM, NO_EOS, ids, run, sampling

PROMPTS = [ids(5 + i, 150 + i) for i in range(8)]


def want(alone):
    return [alone(p, 8, **sampling(i % 2)) for i, p in enumerate(PROMPTS)]


def test_a_thread_pool_gets_the_same_replies(calm, alone):
    """Cases 29, 67: loaded in one thread, generated, streamed and stepped from four others at once."""
    expected = want(alone)

    def reply(i: int) -> list[int]:
        options = {"max_tokens": 8, "max_drafts": i % 6, **sampling(i % 2)}
        if i % 3 == 0:
            return [t for piece in calm.stream(PROMPTS[i], **options) for t in piece.tokens]
        if i % 3 == 1:
            return calm.generate(PROMPTS[i], **options).tokens
        with calm.open(PROMPTS[i], **options) as handle:
            while not handle.done:
                calm.step()
            return handle.tokens

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(reply, range(8))) == expected


def test_asyncio_to_thread_gets_the_same_replies(calm, alone):
    """Case 67."""
    expected = want(alone)

    async def every():
        calls = [asyncio.to_thread(calm.generate, p, max_tokens=8, **sampling(i % 2)) for i, p in enumerate(PROMPTS)]
        return [r.tokens for r in await asyncio.gather(*calls)]

    assert asyncio.run(every()) == expected


def test_callers_queue_for_one_slot():
    """Many threads, one slot: who finds it taken waits for its reply to end, and nobody is told that it never will."""
    with Model.load(CALM, max_slots=1, draft=False, prefix_bytes=0) as model, ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda i: model.generate([3 + i], max_tokens=2, seed=0).tokens, range(24)))
        again = [model.generate([3 + i], max_tokens=2, seed=0).tokens for i in (0, 11, 23)]
        assert [replies[i] for i in (0, 11, 23)] == again


def test_a_stream_collected_on_the_models_own_thread_does_not_wait_for_itself(calm):
    pieces = calm.stream(PROMPTS[0], max_tokens=8)
    next(pieces)
    held = [pieces]
    del pieces

    caller = threading.Thread(target=calm._life.worker.run, args=(held.clear,), daemon=True)
    caller.start()
    caller.join(30)
    assert not caller.is_alive()
    assert calm._engine.free == 16


def test_a_call_gets_in_after_at_most_one_round_however_many_threads_step(calm, monkeypatch):
    """Counted from before the call to its turn."""
    rounds, run = [], calm._engine.lanes.round
    monkeypatch.setattr(calm._engine.lanes, "round", lambda slots: rounds.append(0) or run(slots))
    turns, call = [], calm._life.run

    def counted(job):
        before = len(rounds)
        return call(lambda parts: turns.append(len(rounds) - before) or job(parts))

    monkeypatch.setattr(calm._life, "run", counted)
    with calm.open(PROMPTS[0], max_tokens=400, logit_bias=NO_EOS) as going, ThreadPoolExecutor(6) as pool:

        def step() -> None:
            while not going.done:
                calm.step()

        steppers = [pool.submit(step) for _ in range(6)]
        for _ in range(5):
            with calm.open(PROMPTS[1], max_tokens=50) as handle, handle.fork() as twin:
                twin.cancel()
        assert not going.done
        going.cancel()
        for stepper in steppers:
            stepper.result()
    assert len(turns) > 20 and max(turns) <= 1


def test_a_disk_that_stands_still_holds_up_nobody_else(calm, alone, tmp_path, monkeypatch):
    """A save that waits for the disk, then a restore that waits for the rest of its file; others generate meanwhile."""
    other = alone(PROMPTS[1], 8, **sampling(1))
    stuck, go_on, fsync = threading.Event(), threading.Event(), os.fsync
    monkeypatch.setattr("os.fsync", lambda file: stuck.set() or go_on.wait(60) or fsync(file))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with calm.open(PROMPTS[0], max_tokens=4, **sampling(0)) as handle, ThreadPoolExecutor(1) as pool:
        run(calm, handle)
        saving = pool.submit(handle.save, tmp_path / "slot")
        assert stuck.wait(60)
        assert calm.generate(PROMPTS[1], max_tokens=8, **sampling(1)).tokens == other
        assert not saving.done()
        go_on.set()
        saving.result()
        restoring = pool.submit(calm.restore, pipe)
        data = (tmp_path / "slot").read_bytes()
        with pipe.open("wb", buffering=0) as file:
            file.write(data[:100])
            assert calm.generate(PROMPTS[1], max_tokens=8, **sampling(1)).tokens == other
            assert not restoring.done()
            file.write(data[100:])
        with restoring.result() as again:
            assert again.tokens == handle.tokens


def used() -> int:
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


def test_a_closed_or_dropped_model_gives_its_memory_back():
    """Case 69: five times, with `with`, `close` and `del`; no thread stays."""
    base, threads = None, None
    for how in ("with", "close", "del", "with", "close"):
        model = Model.load(CALM)
        handle = model.open(PROMPTS[0], max_tokens=3)
        model.generate(PROMPTS[:2], max_tokens=3)
        if how == "with":
            with model:
                pass
        elif how == "close":
            model.close()
            model.close()
        assert how == "del" or (handle.text is not None and handle.stats.generated_tokens == 3)
        worker = model._life.worker._thread
        del model, handle
        gc.collect()
        worker.join(10)
        assert not worker.is_alive()
        if base is None:
            base, threads = used(), threading.active_count()
        assert used() <= base and threading.active_count() <= threads


def test_a_closed_model_says_so():
    model = Model.load(CALM, prefix_bytes=0)
    handle = model.open(PROMPTS[0], max_tokens=3)
    stream = model.stream(PROMPTS[1], max_tokens=3)
    model.close()
    for call in (model.step, handle.cancel, handle.fork, lambda: model.generate([3])):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert next(stream).finish_reason == "cancelled"
    handle.close()
    assert handle.finish_reason == "cancelled" and "closed" in repr(model)
