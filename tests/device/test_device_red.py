"""Each check of the suite can fail: with a mistake planted into plain operations, which are quick, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold import Model
from tensorfold.backend import choice
from tensorfold.backend.ops import OpsBackend
from tensorfold.network.forward import Forward
from tensorfold.receipt import suite
from tensorfold.receipt.finding import Finding, guarded
from tensorfold.receipt.footprint import constant_memory, used_where_they_lie
from tensorfold.receipt.laws import Laws
from tensorfold.receipt.rows import RowLaw, some_ids
from tensorfold.receipt.runner import Computed, Runner
from tests.support.goldens import EXAMPLE
from tests.support.planted import crowded

Crowded = crowded(OpsBackend, "attend")


@cache
def law(backend: type[OpsBackend] = Crowded) -> RowLaw:
    return RowLaw(Runner(EXAMPLE, backend))


def broken(finding: Finding, *words: str) -> None:
    assert not finding.ok and all(word in finding.detail for word in words), finding


# ---- the network


def test_a_row_among_others_that_differs() -> None:
    broken(law().one_launch((1, 5)), "5 rows: other bits in", "logits")
    assert law().one_launch((1,)).ok


def test_steps_of_several_rows_that_differ() -> None:
    broken(law().decode_steps(), "logits", "window")


def test_a_slot_among_others_that_differs() -> None:
    """Each slot alone has other rows in its launches than beside the others."""
    few = crowded(OpsBackend, "attend", more_than=11)
    broken(law(few).several_slots(), "the slot of 38 ids", "the slot of 21 ids")


def test_a_prompt_row_that_differs_from_a_decode_row() -> None:
    wide = crowded(OpsBackend, "attend", more_than=16)
    broken(law(wide).prompt(18), "a chunk of 152", "18 ids in chunks of 18", "18 ids in chunks of 64")


def test_a_replayed_graph_that_differs() -> None:
    right, calls = law(OpsBackend), list[int]()
    network = right.runner.network

    def stale(plan: Any, caches: Any) -> Forward:
        calls.append(plan.rows)
        new = network(plan, caches)
        if len(calls) == 7 and new.logits is not None:
            object.__setattr__(new, "logits", (new.logits.view(mx.uint32) ^ 1).view(mx.float32))
        return new

    assert right.replayed(network).ok
    broken(right.replayed(stale), "the replayed steps: other bits in logits")
    assert len(calls) == 10


def test_a_row_dependent_operation() -> None:
    broken(law().row_check(), "attend")
    assert law(OpsBackend).row_check().ok


def test_other_bits_than_the_hosts() -> None:
    found = {"logits": "1" * 64, "state": "2" * 64}
    assert suite.end_to_end("a", found, {"a": found}).ok
    broken(suite.end_to_end("a", found, {"a": {**found, "state": "3" * 64}}), "other bits in state")
    unknown = suite.end_to_end("b", found, {"a": found})
    assert unknown.ok and "no stored digest" in unknown.detail


def test_a_digest_of_another_run_differs() -> None:
    assert law().digests() != law(OpsBackend).digests()


def test_the_comparison_sees_a_single_bit() -> None:
    run = law(OpsBackend).alone[0]
    for key in ("window", "rows.2", "keys.6"):
        changed = {**run.rows, key: run.rows[key].copy()}
        changed[key].flat[-1] ^= 1
        assert run.differences(Computed(run.logits, changed)) == [key]
    assert run.differences(Computed(np.nextafter(run.logits, np.float32(9)), run.rows)) == ["logits"]


def test_ids_are_the_same_everywhere_and_ordinary() -> None:
    assert some_ids(4, 1, 2048) == [692, 453, 218, 2027]
    assert all(2 < i < 2048 for salt in range(30) for i in some_ids(300, salt, 2048))


# ---- the model


@pytest.fixture(scope="module")
def crowded_model() -> Iterator[Model]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "OpsBackend", Crowded)
        patch.setattr("tensorfold.loading.row_dependent_operations", lambda *_: set())
        with Model.load(EXAMPLE, backend="ops", prefix_bytes=0, draft_policy="fixed") as model:
            yield model


def test_laws_that_do_not_hold(crowded_model: Model) -> None:
    """Prompts alone are wide launches too, so it is decode windows and batches that part from them."""
    findings = Laws(crowded_model, 2, 12).findings()
    assert [f.name.split()[0] for f in findings] == ["drafted", "a", "a", "a", "a"]
    for finding in findings:
        broken(finding, "prompt")


@pytest.fixture(scope="module")
def right_model() -> Iterator[Model]:
    with Model.load(EXAMPLE, backend="ops", prefix_bytes=0, draft_policy="fixed", max_slots=2) as model:
        yield model


def test_a_round_that_copies_the_pools(right_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = OpsBackend.commit
    pool = 2**25
    assert all(f.ok for f in constant_memory(right_model, pool, 2))

    def copying(self: OpsBackend, cache: mx.array, *rest: mx.array) -> mx.array:
        return commit(self, cache + mx.zeros_like(cache), *rest)

    monkeypatch.setattr(OpsBackend, "commit", copying)
    constant, copied = constant_memory(right_model, pool, 2)
    assert constant.ok
    broken(copied, "beside pools of")


def test_memory_that_grows(right_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes, kept = right_model._engine.lanes, list[mx.array]()
    right = lanes.round

    def leaking(slots: Any) -> Any:
        kept.append(mx.zeros((len(kept) * 2**15,)))
        mx.eval(kept)
        return right(slots)

    monkeypatch.setattr(lanes, "round", leaking)
    broken(constant_memory(right_model, 2**20, 2)[0], "at first")


def test_tensors_that_were_copied() -> None:
    """Elsewhere than on Metal every tensor is; and one that claims to be mapped must have the file's address."""

    class Folder:
        names = ("a", "b", "layers.1.engram.embed.weight")
        bits = {name: np.zeros(64, np.uint8) for name in names}
        reason: dict[str, str] = {}

        def why_copied(self, name: str) -> str | None:
            return self.reason.get(name)

        def array(self, name: str) -> Any:
            return self.bits[name]

        def view(self, name: str) -> np.ndarray:
            return self.bits[name]

    def at(array: Any) -> int:
        return int(array.__array_interface__["data"][0])

    folder: Any = Folder()
    assert used_where_they_lie(folder, at).detail == "2 tensors with equal pointers"
    broken(used_where_they_lie(folder, lambda array: at(array) + 1), "a was copied", "b was copied")
    folder.reason = {"a": "reaches the tail"}
    assert used_where_they_lie(folder, at).detail == "1 tensors with equal pointers; 1 copied: reaches the tail"
    folder.reason = dict.fromkeys("ab", "no")
    broken(used_where_they_lie(folder, at), "no tensor is mapped")


# ---- the suite


def test_a_check_that_cannot_end_is_a_fault() -> None:
    def check() -> list[Finding]:
        raise RuntimeError("the device is gone")

    assert guarded("rows", check) == [Finding("rows", False, "RuntimeError: the device is gone")]


def test_one_fault_fails_the_suite_and_the_rest_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    fine = Finding("fine", True, "all")
    monkeypatch.setattr(suite, "make_runner", lambda folder, name: SimpleNamespace(close=list))
    monkeypatch.setattr(suite, "row_findings", lambda runner, size: [("rows", lambda: [fine, fine._replace(ok=False)])])
    monkeypatch.setattr(suite.Model, "load", lambda *args, **options: 1 / 0)
    found = suite.examine(EXAMPLE, "host", said.append)
    assert not found["ok"] and [f["ok"] for f in found["findings"]] == [True, False, False]
    assert found["findings"][-1]["detail"] == "ZeroDivisionError: division by zero" and len(said) == 3
    assert found["checkpoint"] == "tiny-v41" and str(EXAMPLE.parent) not in repr(found)
