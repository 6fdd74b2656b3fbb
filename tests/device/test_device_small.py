"""What launches read of a few bytes lies in longer arrays: no value of a config or of a size is an array of its own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.kernels import KernelBackend
from tensorfold.engine import rows
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.rows import RowParams
from tensorfold.kernels.kernel import Kernel
from tensorfold.network.plan import Planner, Segment
from tensorfold.receipt.runner import Runner
from tensorfold.small import LEAST, constant, padded, start_of_longer
from tests.support.goldens import EXAMPLE
from tests.support.hostkit import needs_clang

OF_A_ROW = {
    ("index_scores", "segment"),
    ("block_scores", "visible"),
    ("select_rows", "visible"),
    ("select_rows", "kept"),
}
FEW_READ = {("embed", "ids"), ("compress_pair", "partner")}  # some twenty threadgroups a round at real sizes
UNREAD = {("attend_scores", "packed_places"), ("attend_values", "packed_places")}  # of layers of windows alone
WEIGHTS = {"s", "s1", "s2", "s3", "weights"}  # a few bytes in the example alone


@needs_clang
def test_no_launch_reads_a_tiny_array(monkeypatch: pytest.MonkeyPatch) -> None:
    found, plain = set[tuple[str, str]](), Kernel.__call__
    runner = Runner(EXAMPLE, lambda config: KernelBackend(config, "host"))
    c = runner.config
    values = c.rms_norm_eps, c.hc_eps, c.swiglu_limit, c.routed_scaling_factor, c.hidden_size**-0.5, c.head_dim**-0.5
    known = [constant(np.float32, value) for value in values]

    def is_constant(a: mx.array) -> bool:
        if a.dtype == mx.float32:
            return any(a is made for made in known)
        return a.dtype in (mx.int32, mx.uint64) and constant(np.dtype(str(a.dtype)[9:]).type, *a.tolist()) is a

    def watched(self: Kernel, *arrays: mx.array, **how: Any) -> list[mx.array]:
        for name, a in zip(self.inputs, arrays):
            if 0 < a.nbytes <= 8 and name not in WEIGHTS and not (a.ndim == 1 and is_constant(a)):
                found.add((self.name, name))
        return plain(self, *arrays, **how)

    monkeypatch.setattr(Kernel, "__call__", watched)
    runner([5, 9], 1)
    assert OF_A_ROW <= found <= OF_A_ROW | FEW_READ | UNREAD


def test_a_plan_of_one_row_holds_longer_arrays() -> None:
    config = Runner(EXAMPLE).config
    plan = Planner(config).build([Segment(0, 5, [7], [0], [0])], 1, 1)
    some = [plan.segment, *(part.visible for part in plan.compressed.values())]
    assert all(a.nbytes >= 16 for a in some) and plan.owner.tolist() == [0]
    assert plan.compressed[1].visible.tolist() == [6] + [0] * (LEAST - 1)


def test_constants_are_made_once_and_keep_their_values() -> None:
    made = constant(np.int32, 5, -3)
    assert made.tolist() == [5, -3] and made.dtype == mx.int32 and constant(np.int32, 5, -3) is made
    assert constant(np.float32, *range(9)).tolist() == list(range(9))


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint32, np.uint64])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_values_are_the_start_of_16_bytes_and_more(kind: type, count: int) -> None:
    values = np.arange(1, count + 1).astype(kind)
    longer = padded(values)
    assert longer.nbytes >= 16 and longer[:count].tolist() == values.tolist() and not longer[count:].any()
    assert start_of_longer(values).tolist() == values.tolist()
    assert start_of_longer(values.reshape(1, -1)).tolist() == [values.tolist()]


def test_what_a_slot_draws_with_lies_in_longer_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of the vocabulary has a threadgroup that reads it."""
    longer: list[int] = []

    def watched(values: np.ndarray) -> mx.array:
        longer.append(padded(values).nbytes)
        return start_of_longer(values)

    monkeypatch.setattr(rows, "start_of_longer", watched)
    drawn = RowParams.build([SamplingParams(temperature=0.7, seed=3)], [9]).warmth(1)
    assert len(longer) == 3 and min(longer) >= 16
    assert [a.tolist() for a in drawn] == [[np.float32(0.7)], [[3, 0]], [9]] and drawn[2].dtype == mx.int32
    assert [a.tolist() for a in RowParams().warmth(2)] == [[0, 0], [[0, 0], [0, 0]], [0, 0]]
