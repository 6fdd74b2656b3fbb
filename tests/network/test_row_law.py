"""The row law on the network: equal bits however a prompt is cut, row by row or together, compiled or not."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold.backend import choice
from tensorfold.backend.ops import OpsBackend, probe
from tensorfold.backend.rows import row_wise
from tensorfold.receipt.runner import Run, Runner
from tests.network.test_streams import goldens
from tests.support.goldens import DATA, EXAMPLE, Trace

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
def whole(name: str, count: int = 1000) -> Run:
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
        assert not Run(run.logits, changed).same(run)
    assert not Run(np.nextafter(run.logits, np.float32(9)), run.rows).same(run)


@pytest.mark.parametrize("name", FOLDERS)
def test_row_by_row_equals_together(name: str) -> None:
    some = ids(name)[:40]
    assert Runner(FOLDERS[name], by_row=True)(some, 16).same(runner(name)(some, 16))


@pytest.mark.parametrize("name", FOLDERS)
def test_compiled_equals_uncompiled(name: str) -> None:
    """What mx.compile fuses, where it has a compiler, changes no bit."""
    runs = [Runner(FOLDERS[name], compiled=c)(ids(name), 64) for c in (True, False)]
    assert runs[0].same(runs[1]) and runs[0].same(whole(name))


# ---- the probe at load

# every operation that computes; those that move bytes or compare alone (embed, gather, commit, select) cannot differ
OPERATIONS = [
    "rms_norm", "rope", "act_quant_fp8", "pack", "matvec_fp8", "matvec_bf16", "matvec_f32", "hc_mix", "hc_collapse",
    "hc_collapse_norm", "hc_post", "hc_mean", "engram_rows", "engram_inject", "compress_pair", "score_rows", "attend",
    "route", "experts", "swiglu", "moe_join",
]  # fmt: skip


def crowded(name: str, seen: list[int]) -> type[OpsBackend]:
    """A device on which one operation gives a row another last bit when more than four rows share its launch."""
    right = getattr(OpsBackend, name)
    rows_of = inspect.getclosurevars(right).nonlocals["names"]

    def planted(self: OpsBackend, *args: Any, **kwargs: Any) -> Any:
        out = right(self, *args, **kwargs)
        parts = out if isinstance(out, tuple) else (out,)
        seen.append(parts[0].shape[0])
        if seen[-1] > 4:
            bits = parts[-1].view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[parts[-1].itemsize]) ^ 1
            parts = (*parts[:-1], bits.view(parts[-1].dtype))
        return parts if isinstance(out, tuple) else parts[0]

    planted.__signature__ = inspect.signature(right)  # type: ignore[attr-defined]
    return type("Crowded", (OpsBackend,), {name: row_wise(*rows_of)(planted)})


@pytest.mark.parametrize("name", OPERATIONS)
def test_probe_finds_a_row_dependent_operation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = runner("tiny_calm").config
    monkeypatch.setattr(probe, "OpsBackend", crowded(name, []))
    assert not probe.rows_are_independent(config)


def test_probe_is_content_where_rows_are_independent() -> None:
    assert probe.rows_are_independent(runner("tiny_calm").config)


def test_after_the_probe_everything_runs_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a device the model loads in its row-by-row way, which restores the law and any other device's stream."""
    seen: list[int] = []
    device = crowded("matvec_fp8", seen)
    some = ids("tiny_calm")[:12]
    alone, shared = (Runner(FOLDERS["tiny_calm"], device)(some, chunk) for chunk in (1, 12))
    assert not shared.same(alone), "the planted operation is felt"
    monkeypatch.setattr(probe, "OpsBackend", device)
    monkeypatch.setattr(choice, "OpsBackend", device)
    with tensorfold.Model.load(FOLDERS["tiny_calm"], draft=False) as model:
        assert model._engine.lanes.backend.by_row  # type: ignore[attr-defined]
        seen.clear()
        got = model.generate(some, max_tokens=4)
        assert set(seen) == {1}
    monkeypatch.undo()
    with tensorfold.Model.load(FOLDERS["tiny_calm"], draft=False) as model:
        want = model.generate(some, max_tokens=4)
    assert isinstance(got, tensorfold.Generation) and isinstance(want, tensorfold.Generation)
    assert got.tokens == want.tokens
