"""The row check at load: every operation that would break the row law is named, and the model then runs by rows."""

from __future__ import annotations

import pytest

import tensorfold
from tensorfold import Generation
from tensorfold.backend import choice
from tensorfold.backend.kernels import KernelBackend
from tensorfold.network.row_check import row_dependent_operations
from tensorfold.receipt.rows import RowLaw, some_ids
from tensorfold.receipt.runner import Runner
from tests.support.goldens import EXAMPLE
from tests.support.planted import crowded, row_wise_operations

# a model whose experts stay in memory never asks for `experts` and `swiglu` alone
OPERATIONS = sorted(set(row_wise_operations(KernelBackend)) - {"experts", "swiglu"})


def found(backend: str, *operations: str) -> set[str]:
    planted = crowded(KernelBackend, *operations)
    runner = Runner(EXAMPLE, lambda config: planted(config, backend))
    return row_dependent_operations(runner.network, runner.engram.gather)


def test_there_are_operations() -> None:
    assert len(OPERATIONS) >= 20 and {"pick_rows", "attend_rotated", "moe", "hc_enter"} <= set(OPERATIONS)


@pytest.mark.parametrize("part", [0, 1])
def test_every_planted_operation_is_found_and_no_other(backend: str, part: int) -> None:
    """Half of all operations at once, then the other half: each is judged on inputs of its own. `moe` runs matrices by
    their own operation, so it may be blamed with them."""
    planted = set(OPERATIONS[part::2])
    blamed = found(backend, *planted)
    assert planted <= blamed and blamed - planted <= ({"moe"} if "matvecs_fp8" in planted else set())


def test_after_the_row_check_everything_runs_by_row(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a warning that names the operation, and the tokens of the right device."""
    ids, seen = some_ids(3, 30, 500), list[int]()

    def reply() -> list[int]:
        with tensorfold.Model.load(EXAMPLE, backend=backend, draft=False) as model:
            seen.clear()
            out = model.generate(ids, max_tokens=2)
        assert isinstance(out, Generation)
        return out.tokens

    want = reply()
    monkeypatch.setattr(choice, "KernelBackend", crowded(KernelBackend, "attend_rotated", seen=seen))
    with pytest.warns(RuntimeWarning, match="attend_rotated.*every launch runs one row"):
        got = reply()
    assert got == want and set(seen) == {1}


def test_the_suite_names_one_planted_operation(backend: str) -> None:
    planted = crowded(KernelBackend, "attend_rotated")
    finding = RowLaw(Runner(EXAMPLE, lambda config: planted(config, backend))).row_check()
    assert not finding.ok and finding.detail == "attend_rotated"
