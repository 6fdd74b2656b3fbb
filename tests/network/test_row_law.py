"""The row law on the network: equal bits however a prompt is cut, row by row or together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import tensorfold
from tensorfold.backend import choice
from tensorfold.backend.ops import OpsBackend
from tensorfold.network.row_check import row_dependent_operations
from tensorfold.receipt.runner import Computed, Runner
from tests.network.test_streams import goldens
from tests.support.goldens import DATA, EXAMPLE, Trace
from tests.support.planted import crowded

FOLDERS = {"tiny_calm": DATA / "tiny_calm", "trained": EXAMPLE}
CHUNKS = (1, 2, 3, 7, 16, 64)


@cache
def ids(name: str) -> list[int]:
    """tiny_calm: 72 ids, over four windows; trained: 136, over a page; in both selection and candidates drop rows."""
    return Trace.load("tiny_calm").ids.tolist() if name == "tiny_calm" else goldens()[1].prompt[:136]


@cache
def runner(name: str) -> Runner:
    return Runner(FOLDERS[name])


@cache
def whole(name: str, count: int = 1000) -> Computed:
    """The first `count` ids, or all, in one chunk."""
    some = ids(name)[:count]
    return runner(name)(some, len(some))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", FOLDERS)
def test_chunks_give_equal_bits(name: str, chunk: int) -> None:
    """All logits, and every cache row that a later token can read: windows, compressed rows, keys, pairs, rings."""
    count = 72 if chunk < 7 else 1000
    assert runner(name)(ids(name)[:count], chunk).same(whole(name, count))


@pytest.mark.parametrize("name", FOLDERS)
def test_uneven_chunks_give_equal_bits(name: str) -> None:
    n = len(ids(name))
    assert runner(name)(ids(name), [5, 1, 1, 30, 2, 17, n - 56]).same(whole(name))


def test_the_comparison_sees_a_single_bit() -> None:
    run = whole("tiny_calm")
    for key in ("window", "rows.2", "keys.6"):
        changed = {**run.rows, key: run.rows[key].copy()}
        changed[key].flat[-1] ^= 1
        assert not Computed(run.logits, changed).same(run)
    assert not Computed(np.nextafter(run.logits, np.float32(9)), run.rows).same(run)


@pytest.mark.parametrize("name", FOLDERS)
def test_row_by_row_equals_together(name: str) -> None:
    some = ids(name)[:40]
    assert Runner(FOLDERS[name], by_row=True)(some, 16).same(runner(name)(some, 16))


# ---- the row check at load

# every operation that computes, in two halves so that each is judged on inputs of its own; what moves bytes or compares
# alone (embed, gather, commit, select) cannot differ
OPERATIONS = [
    "rms_norm", "rope", "act_quant_fp8", "pack", "matvec_fp8", "matvec_bf16", "matvec_f32", "hc_mix", "hc_collapse",
    "hc_collapse_norm", "hc_post", "hc_mean", "engram_rows", "engram_inject", "compress_pair", "score_rows", "attend",
    "route", "experts", "swiglu", "join_experts",
]  # fmt: skip


def found(backend: Callable[..., OpsBackend]) -> set[str]:
    r = Runner(FOLDERS["trained"], backend)
    return row_dependent_operations(r.network, r.engram.gather)


@pytest.mark.parametrize("more_than", [1, 4, 30])
@pytest.mark.parametrize("part", [0, 1])
def test_every_row_dependent_operation_is_named(part: int, more_than: int) -> None:
    """Whether its bits change beside one other row or in wide launches alone."""
    planted = set(OPERATIONS[part::2])
    blamed = found(crowded(OpsBackend, *planted, more_than=more_than))
    assert planted <= blamed and blamed <= planted | {"experts"}  # which runs its matrices by their own operation


def test_nothing_is_named_where_rows_are_independent() -> None:
    assert found(OpsBackend) == set()


def test_after_the_row_check_everything_runs_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a device the model loads in its row-by-row way, which restores the law and any other device's stream."""
    seen: list[int] = []
    device = crowded(OpsBackend, "matvec_fp8", more_than=4, seen=seen)
    some = ids("tiny_calm")[:12]
    alone, shared = (Runner(FOLDERS["tiny_calm"], device)(some, chunk) for chunk in (1, 12))
    assert not shared.same(alone), "the planted operation is felt"
    monkeypatch.setattr(choice, "OpsBackend", device)
    with pytest.warns(RuntimeWarning, match="matvec_fp8.*every launch runs one row"):
        model = tensorfold.Model.load(FOLDERS["tiny_calm"], draft=False)
    with model:
        seen.clear()
        got = model.generate(some, max_tokens=4)
        assert set(seen) == {1}
    monkeypatch.undo()
    with tensorfold.Model.load(FOLDERS["tiny_calm"], draft=False) as model:
        want = model.generate(some, max_tokens=4)
    assert isinstance(got, tensorfold.Generation) and isinstance(want, tensorfold.Generation)
    assert got.tokens == want.tokens
