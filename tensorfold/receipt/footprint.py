"""Where bytes lie: weights used in the mapped file, pools not copied, constant memory over rounds. Knows no logits."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from tensorfold.checkpoint.reader import MAPPED, Checkpoint
from tensorfold.model import Model
from tensorfold.receipt.finding import Finding, holds
from tensorfold.state.caches import Caches

PROMPT = 37
SLACK = 2**16


def address(array: mx.array) -> int:
    """Where an evaluated array's bytes lie in the host's memory."""
    bits = array if array.dtype != mx.bfloat16 else array.view(mx.uint16)
    return int(np.asarray(memoryview(bits)).__array_interface__["data"][0])  # type: ignore[arg-type]


def used_where_they_lie(checkpoint: Checkpoint, at: Callable[[mx.array], int] = address) -> Finding:
    """Every tensor that offset and place allow is an alias of the mapping: equal pointers. Needs memory that host and
    device share."""
    aliases, copies, broken = 0, dict[str, int](), list[str]()
    for name in checkpoint.names:
        if ".engram.embed." in name:
            continue  # tables are read row by row and are no array
        why = checkpoint.why_copied(name)
        array = checkpoint.array(name)
        wanted = checkpoint.view(name).__array_interface__["data"][0]
        if why is None and at(array) != wanted:
            broken.append(f"{name} was copied")
        aliases += why is None
        if why is not None:
            copies[why] = copies.get(why, 0) + 1
    if not aliases:
        broken.append(f"no tensor is {MAPPED}")
    said = "".join(f"; {count} copied: {why}" for why, count in copies.items())
    return holds("mapped tensors are used where they lie", broken, f"{aliases} tensors with equal pointers{said}")


def constant_memory(model: Model, pool_bytes: int, rounds: int) -> list[Finding]:
    """Decode rounds over cache pools of about `pool_bytes` in all: none takes memory of a pool's size, and later ones
    take what `rounds` early ones took. `model` has no open slot and keeps no prompts."""
    caches: Caches = model._engine.memory.caches
    model._life.worker.run(lambda: _grow(caches, pool_bytes))
    endless = dict.fromkeys(model.config.eos_token_ids, float("-inf"))
    with model.open(range(3, 3 + PROMPT), draft=False, max_tokens=5 * rounds + 2, logit_bias=endless) as handle:
        while len(handle.tokens) < rounds:
            model.step()
        first, _, last = (_most_taken(model, rounds) for _ in range(3))
    pool = max(a.nbytes for pools in (caches.rows, caches.keys) for a in pools.values())
    grew = [] if last <= first + SLACK else [f"{first} bytes a round at first, {last} later"]
    copied = [] if max(first, last) < pool // 2 else [f"a round takes {max(first, last)} bytes beside pools of {pool}"]
    beside = f"{first} bytes a round beside weights and caches"
    return [
        holds("memory is constant over decode rounds", grew, beside),
        holds("no round copies a cache pool", copied, f"{beside}; pools of up to {pool}"),
    ]


def _grow(caches: Caches, pool_bytes: int) -> None:
    page = sum(a.nbytes for pool in (caches.rows, caches.keys) for a in pool.values()) // caches.pages
    caches.grow(max(caches.pages, pool_bytes // page))
    mx.eval(caches.arrays())


def _most_taken(model: Model, rounds: int) -> int:
    """The most that some rounds took beyond what was there before them, in bytes."""

    def begin() -> int:
        mx.synchronize()
        mx.clear_cache()
        mx.reset_peak_memory()
        return mx.get_active_memory()

    before = model._life.worker.run(begin)
    for _ in range(rounds):
        model.step()
    return model._life.worker.run(mx.get_peak_memory) - before
