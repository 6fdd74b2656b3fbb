"""Memory: weights stay packed, and a long reply takes no more than its pages."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import tensorfold
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.receipt.runner import Runner
from tests.support.goldens import DATA, EXAMPLE

FOLDERS = {"tiny_calm": DATA / "tiny_calm", "trained": EXAMPLE}


def arrays(value: Any, seen: set[int]) -> Iterator[mx.array]:
    """Every array that can be reached from `value`, once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from arrays(v, seen)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from arrays(v, seen)
    elif type(value).__module__.startswith("tensorfold"):
        yield from arrays(getattr(value, "__dict__", {}), seen)


def text_bytes(folder: Path) -> int:
    """Bytes of the text tensors, drafter included, without the Engram tables."""
    with Checkpoint.open(folder) as ck:
        return sum(ck.nbytes(name) for name in ck.names if ".engram.embed." not in name)


@pytest.mark.parametrize("name", FOLDERS)
def test_weights_stay_packed(name: str) -> None:
    """What network and drafter keep is at most 1.1 times the checkpoint's own bytes, and at least nine tenths of them,
    so that it was all found."""
    runner, seen = Runner(FOLDERS[name]), set[int]()
    seen.add(id(runner.checkpoint))
    kept = sum(a.nbytes for a in arrays([runner.network, runner.drafter], seen))
    assert 0.9 * text_bytes(FOLDERS[name]) <= kept <= 1.1 * text_bytes(FOLDERS[name])


def test_active_memory_after_load_is_the_packed_weights() -> None:
    """MLX's own count; what is added are rotary tables and caches of one page, small beside 9 MB of weights."""
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    with tensorfold.Model.load(EXAMPLE, max_slots=1) as model:
        caches = model._engine.memory.caches
        mx.clear_cache()
        used = mx.get_active_memory() - before - caches.nbytes
    assert used <= 1.1 * text_bytes(EXAMPLE)


def test_memory_is_constant_over_a_long_reply() -> None:
    """Drafted, 300 tokens: after each round the active memory less the caches is what it was, to the size of a round's
    proposals; only the pages of compressed rows grow, and never by more than doubling."""
    with tensorfold.Model.load(EXAMPLE, prefix_bytes=0, draft_policy="fixed", max_slots=1) as model:
        caches = model._engine.memory.caches
        handle = model.open("import os\n", max_tokens=300, logit_bias={1: float("-inf")})
        used, pages = [], []
        while model.step():
            used.append(mx.get_active_memory() - caches.nbytes)
            pages.append(caches.pages)
        assert len(handle.tokens) == 300
        ring = caches.window[0].shape[0]
    early, late = used[20:40], used[-20:]
    assert max(late) <= max(early) + 2**14
    assert pages[-1] <= 9 and ring == 2 * model_window()  # the slot's ring and the spare one


def model_window() -> int:
    with Checkpoint.open(EXAMPLE) as ck:
        return ck.config.sliding_window
