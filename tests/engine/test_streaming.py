"""Experts streamed through a pool of any size: tokens and states of a model that holds all, and honest counts."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold import CheckpointError, Model
from tensorfold.backend.ops import OpsBackend
from tensorfold.backend.pool import LEAVES
from tensorfold.checkpoint import Checkpoint
from tensorfold.checkpoint.files import ShardFile
from tensorfold.network import streaming
from tensorfold.network.streaming import ExpertPool, StreamedExperts
from tests.engine.kit import CALM, TRAINED, differences, ids, run, sampling, state
from tests.engine.test_faults import shard_with
from tests.support.hostkit import needs_clang

CALM_ONE, TRAINED_ONE = (tensorfold.describe(path).expert_bytes for path in (CALM, TRAINED))
PROMPTS = [ids(90, 140), ids(9, 141), ids(33, 142)]  # the first is longer than a chunk


@contextmanager
def streamed(folder: Path, entries: int, one: int, **options: Any) -> Iterator[Model]:
    """A model with room for so many experts."""
    options = {"prefix_bytes": 0, "draft_policy": "fixed", "max_slots": 4, **options}
    with Model.load(folder, experts="streamed", expert_bytes=entries * one, **options) as model:
        found = model.streaming
        assert found is not None and found.slots == found.entries == min(entries, found.experts)
        yield model


def outcome(model: Model, prompts: list[list[int]], count: int, **options: Any) -> tuple[list[list[int]], list[Any]]:
    """Tokens and readable states of prompts side by side, with drafts."""
    handles = [model.open(p, max_tokens=count, **options) for p in prompts]
    run(model, *handles)
    found = [h.tokens for h in handles], [state(h) for h in handles]
    for handle in handles:
        handle.close()
    return found


def same(found: tuple[Any, Any], right: tuple[Any, Any]) -> None:
    assert found[0] == right[0]
    assert [differences(a, b) for a, b in zip(found[1], right[1])] == [[]] * len(right[1])


def test_any_budget_gives_the_tokens_and_states_of_a_whole_model(calm: Model) -> None:
    """Room for 1, 2, k, a layer's and all experts: greedy and sampled, drafts on, three slots, a long prompt."""
    right = [outcome(calm, PROMPTS, 10, **sampling(mode)) for mode in (0, 2)]
    every = tensorfold.describe(CALM).routed_experts
    assert calm.streaming is None
    for entries in (1, 2, 3, 12, every):
        with streamed(CALM, entries, CALM_ONE) as model:
            for mode, want in zip((0, 2), right):
                same(outcome(model, PROMPTS, 10, **sampling(mode)), want)
            found = model.streaming
            assert found is not None and found.resident == min(entries, found.misses)
            assert (found.passes > 0) == (entries < 12)


def test_a_trained_model_streams_its_tokens(trained: Model) -> None:
    prompts = [ids(20, 143), ids(5, 144)]
    right = [outcome(trained, prompts, 12, **sampling(mode)) for mode in (0, 1)]
    for entries in (1, 4):
        with streamed(TRAINED, entries, TRAINED_ONE) as model:
            for mode, want in zip((0, 1), right):
                same(outcome(model, prompts, 12, **sampling(mode)), want)


def test_rows_by_themselves_and_updates_by_mlx_give_the_same(calm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows depend on their company, and where the host cannot write into the device's memory."""
    right = outcome(calm, PROMPTS[1:], 6)
    monkeypatch.setattr("tensorfold.loading.row_dependent_operations", lambda *_: {"attend"})
    monkeypatch.setattr("tensorfold.backend.pool.shares_memory", lambda: False)
    for entries in (2, 40):
        with streamed(CALM, entries, CALM_ONE) as model:
            same(outcome(model, PROMPTS[1:], 6), right)


@needs_clang
def test_the_kernels_on_the_host_stream_their_tokens() -> None:
    """Equal to the kernels with whole experts: in passes for the prompt's rows, in one turn for a single row."""
    options = {"backend": "host", "prefix_bytes": 0, "max_slots": 1, "draft": False}
    prompt = ids(3, 145)
    with Model.load(TRAINED, experts="mapped", **options) as model:
        right = outcome(model, [prompt], 2)
    with streamed(TRAINED, 5, TRAINED_ONE, **options) as model:
        assert not model._engine.lanes.network.traceable
        same(outcome(model, [prompt], 2), right)
        found = model.streaming
    assert found is not None and 0 < found.passes < 2 * model.config.num_hidden_layers


# ---- the pool


@pytest.fixture
def opened() -> Iterator[Checkpoint]:
    with Checkpoint.open(CALM) as checkpoint:
        yield checkpoint


def make_pool(checkpoint: Checkpoint, entries: int) -> ExpertPool:
    pool = ExpertPool(OpsBackend(checkpoint.config), checkpoint, entries)
    for layer in (0, 1):
        pool.layer(f"layers.{layer}.ffn.experts", 12)
    return pool


def fetch(pool: ExpertPool, layer: int, *experts: int) -> list[int]:
    return pool.fetch(f"layers.{layer}.ffn.experts", list(experts), mx.zeros(1)).tolist()


def known(pool: ExpertPool) -> list[tuple[int, int]]:
    """Layer and expert of what is resident, the next to give way first."""
    return [(int(prefix.split(".")[1]), e) for prefix, e in pool._known]


def test_the_expert_not_asked_for_the_longest_gives_way(opened: Checkpoint) -> None:
    """Over all layers; what a layer asks for now is never taken from it."""
    pool = make_pool(opened, 4)
    fetch(pool, 0, 1, 2)
    fetch(pool, 1, 1, 2)
    first = fetch(pool, 0, 1)
    assert known(pool) == [(0, 2), (1, 1), (1, 2), (0, 1)]
    fetch(pool, 1, 7)
    assert known(pool) == [(1, 1), (1, 2), (0, 1), (1, 7)]
    entries = fetch(pool, 1, 1, 3, 4)  # its own 1 was next to go
    assert known(pool) == [(1, 7), (1, 1), (1, 3), (1, 4)] and len(set(entries)) == 3
    assert first != [] and fetch(pool, 1, 1, 3, 4) == entries
    assert (pool.stats.hits, pool.stats.misses) == (1 + 1 + 3, 2 + 2 + 1 + 2)
    pool.close()


def test_passes_begin_with_what_is_there(opened: Checkpoint) -> None:
    """A layer that asks for more experts than the pool holds reads none of those that it has."""
    pool, prefix = make_pool(opened, 3), "layers.0.ffn.experts"
    fetch(pool, 0, 5, 6, 7)
    layer, asked = StreamedExperts(pool, prefix), np.array([[1, 2, 5], [4, 6, 7]])
    before, weights = pool.stats, mx.ones((2, 3))
    x = mx.ones((2, opened.config.hidden_size), mx.bfloat16)
    layer._in_passes(x, asked, [1, 2, 4, 5, 6, 7], weights, mx.zeros(1))
    after = pool.stats
    assert (after.hits - before.hits, after.misses - before.misses, after.passes) == (3, 3, 1)
    pool.close()


def test_a_slot_holds_what_a_whole_layer_holds(opened: Checkpoint) -> None:
    """Both backends' rooms, written in place and through updates; special scales as loading treats them."""
    from tensorfold.backend.kernels.pool import GatheredRoom
    from tensorfold.backend.ops.linear import load_experts
    from tensorfold.backend.ops.pool import Fp4Room

    tensors = {f"x.0.{leaf}": opened.raw(f"layers.0.ffn.experts.3.{leaf}").copy() for leaf in LEAVES}
    tensors["x.0.w1.scale"][0, 0], tensors["x.0.w2.scale"][1, 0] = 0, 255
    tensors["x.0.w3.scale"][-1, -1] = 255

    class One:
        raw = staticmethod(tensors.__getitem__)

    whole, shapes = load_experts(One(), "x", 1), [t.shape for t in tensors.values()]
    for shared in (True, False):
        ours, kernels = Fp4Room(shapes, 3, shared), GatheredRoom(shapes, 3, shared)
        for room in (ours, kernels):
            for part, tensor in zip(room.parts(1), tensors.values()):
                part[:] = tensor.reshape(-1)
            room.filled([1])
        for held, right in zip((*ours.weight.w13, *ours.weight.w2), (*whole.w13, *whole.w2)):
            assert np.array_equal(np.array(held[1]), np.array(right[0]))
            assert not np.array(held[0]).any() and not np.array(held[2]).any()
        flat = np.array(kernels.weight.shard).reshape(-1)
        places = [*np.array(kernels.weight.up)[1].reshape(-1), *np.array(kernels.weight.down)[1].reshape(-1)]
        for place, tensor in zip(places, tensors.values()):
            assert place % 16 == 0 and np.array_equal(flat[int(place) :][: tensor.size], tensor.reshape(-1))


@pytest.mark.parametrize("shared", [True, False])
def test_filling_an_entry_copies_no_pool(shared: bool) -> None:
    """The array stays where it is, and the peak of MLX's memory grows by entries, not by pools."""
    from tensorfold.backend.pool import EntryArray

    pool = EntryArray((64, 2**16), mx.uint8, shared)
    where = np.asarray(pool.array).__array_interface__["data"][0]
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for turn in range(3):
        for entries in ([1, 2, 63], [0]):
            for i in entries:
                pool.entry(i)[:] = turn + i
            pool.put(entries)
            used = mx.sum(pool.array[mx.array(entries)].astype(mx.int32), -1)  # a graph that reads it, and is done
            assert used.tolist() == [2**16 * (turn + i) for i in entries]
    del used
    assert np.asarray(pool.array).__array_interface__["data"][0] == where
    assert mx.get_peak_memory() - before < pool.array.nbytes // 2


def test_a_model_never_copies_its_pool(calm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through rounds with drafts and passes, the pool's arrays stay where they were allocated."""
    for shared in (True, False):
        monkeypatch.setattr("tensorfold.backend.pool.shares_memory", lambda shared=shared: shared)
        with streamed(CALM, 5, CALM_ONE) as model:

            def places(model: Model = model) -> list[int]:
                weight = model._life.parts.pool.weight
                arrays = [*weight.w13, *weight.w2]
                return model._life.worker.run(lambda: [np.asarray(a).__array_interface__["data"][0] for a in arrays])

            before = places()
            outcome(model, PROMPTS, 4)
            assert places() == before


# ---- counts


def test_counts_add_up_and_nothing_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for all, each expert is read once, and a repeated prompt reads nothing and waits for nothing."""
    every = tensorfold.describe(CALM).routed_experts
    with streamed(CALM, every, CALM_ONE) as model:
        assert model.streaming == streaming.Streaming(every, every, 0)
        outcome(model, PROMPTS, 6)
        first = model.streaming
        assert first is not None
        assert first.bytes_read == first.misses * CALM_ONE and first.resident == first.misses <= every
        assert 0 <= first.stall_seconds <= first.read_seconds and first.read_seconds > 0 == first.passes
        with monkeypatch.context() as patch:
            patch.setattr(ShardFile, "read_into", lambda *_: pytest.fail("an expert that is there was read"))
            outcome(model, PROMPTS, 6)
        second = model.streaming
        assert second is not None
        assert second.hits > first.hits and second.misses == first.misses
        assert (second.read_seconds, second.stall_seconds) == (first.read_seconds, first.stall_seconds)
    with pytest.raises(RuntimeError, match="closed"):
        _ = model.streaming


def test_a_layer_reads_its_routing_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, plain = list[int](), streaming.routing_read
    monkeypatch.setattr(streaming, "routing_read", lambda ids: (reads.append(1), plain(ids))[1])
    with streamed(CALM, 2, CALM_ONE) as model:
        slot = model.open(PROMPTS[1], max_tokens=6)
        while not slot.done:
            reads.clear()
            model.step()
            assert len(reads) == model.config.num_hidden_layers
        found = model.streaming
    assert found is not None and found.bytes_read == found.misses * CALM_ONE


def test_a_whole_model_reads_no_routing(calm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "routing_read", lambda _: pytest.fail("read"))
    outcome(calm, PROMPTS[1:2], 3)


def test_memory_says_where_the_experts_are(calm: Model) -> None:
    about = tensorfold.describe(CALM)
    whole = calm.memory()
    assert whole.expert_bytes == 0 and "routed experts" in {k.name for k in whole.weights if k.held != "disk"}
    with streamed(CALM, 5, CALM_ONE, engram="disk") as model:
        used = model.memory()
    assert used.expert_bytes == 5 * CALM_ONE and used.disk_bytes == about.disk_bytes + about.routed_bytes
    (kind,) = (k for k in used.weights if k.name == "routed experts")
    assert kind.held == "disk" and "streamed" in kind.why and "streamed" in repr(used)
    assert next(k.held for k in used.weights if k.name == "drafter experts") != "disk"


# ---- faults


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CALM, tmp_path / "model"))


@pytest.mark.parametrize("how", ["cut", "written"])
def test_a_shard_that_changes_is_an_error_and_the_model_goes_on(folder: Path, how: str) -> None:
    path = shard_with(folder, "layers.3.")
    with streamed(folder, 3, CALM_ONE) as model:
        want = outcome(model, PROMPTS, 5)
        whole, info = path.read_bytes(), path.stat()
        slot = model.open(PROMPTS[0], max_tokens=5)
        model.step()
        if how == "cut":
            os.truncate(path, info.st_size // 2)
        else:
            with path.open("r+b") as file:
                file.seek(info.st_size // 2)
                file.write(b"\x01" * 64)
            os.utime(path)
        with pytest.raises(CheckpointError, match=path.name):
            run(model, slot)
        assert slot.done and slot.finish_reason == "error" and isinstance(slot.error, CheckpointError)
        slot.close()
        with pytest.raises(CheckpointError, match=path.name):
            outcome(model, PROMPTS[1:], 5)
        with path.open("r+b") as file:
            file.write(whole)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        for left in list(model._engine.slots):
            model._life.worker.run(lambda left=left: model._engine.close(left))
        same(outcome(model, PROMPTS, 5), want)


def test_a_failed_read_leaves_no_expert_behind(opened: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three cannot be read: none of the three is taken to be there, and no entry is lost."""
    pool, plain = make_pool(opened, 3), os.preadv
    right = fetch(pool, 0, 1)
    bad = opened.piece("layers.1.ffn.experts.5.w3.weight")

    def preadv(fd: int, buffers: Any, offset: int) -> int:
        if offset == bad.start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return plain(fd, buffers, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", preadv)
        with pytest.raises(CheckpointError, match=r"layers\.1\.ffn\.experts\.5\.w3\.weight.*cannot be read"):
            fetch(pool, 1, 4, 5)
    assert known(pool) == [(0, 1)] and fetch(pool, 0, 1) == right
    assert len(set(fetch(pool, 1, 4, 5, 6))) == 3
    pool.close()


def test_nothing_is_given_away_while_a_read_runs(opened: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beside the reads that fails ends after them: their memory is not reused before."""
    pool, plain, ended = make_pool(opened, 2), ShardFile.read_into, list[int]()

    def slow(self: ShardFile, *args: Any) -> None:
        time.sleep(0.05)
        plain(self, *args)
        ended.append(1)

    monkeypatch.setattr(ShardFile, "read_into", slow)

    def fail(*_: Any) -> None:
        raise RuntimeError("the device gave up")

    monkeypatch.setattr(mx, "eval", fail)
    with pytest.raises(RuntimeError, match="gave up"):
        pool.fetch("layers.0.ffn.experts", [1], mx.zeros(1))
    assert len(ended) == len(LEAVES) and known(pool) == [] and len(pool._free) == 2
    pool.close()
