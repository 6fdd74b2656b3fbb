"""What launches read of a few bytes lies in longer arrays: no value of a config or of a size is an array of its own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.kernels import KernelBackend
from tensorfold.kernels.kernel import Kernel
from tensorfold.network.plan import Planner, Window
from tensorfold.receipt.runner import Runner
from tensorfold.small import LEAST, constant, padded
from tests.support.goldens import EXAMPLE
from tests.support.hostkit import needs_clang

OF_A_ROW = {"segment", "visible", "kept"}  # parts of a plan's longer arrays
ONCE = {"ids", "partner", "packed_places"}  # read by one threadgroup, or not at all
TINY_WEIGHTS = {"s", "s1", "s2", "s3", "weights"}  # a few bytes in the example alone


@needs_clang
def test_no_launch_reads_a_tiny_array(monkeypatch: pytest.MonkeyPatch) -> None:
    found, plain = set[str](), Kernel.__call__
    runner = Runner(EXAMPLE, lambda config: KernelBackend(config, "host"))
    c = runner.config
    values = c.rms_norm_eps, c.hc_eps, c.swiglu_limit, c.routed_scaling_factor, c.hidden_size**-0.5, c.head_dim**-0.5
    known = [constant(np.float32, value) for value in values]

    def is_constant(a: mx.array) -> bool:
        if a.dtype == mx.float32:
            return any(a is made for made in known)
        return a.dtype in (mx.int32, mx.uint64) and constant(np.dtype(str(a.dtype)[9:]).type, *a.tolist()) is a

    def watched(self: Kernel, *arrays: mx.array, **how: Any) -> list[mx.array]:
        found.update(
            n for n, a in zip(self.inputs, arrays) if 0 < a.nbytes <= 8 and not (a.ndim == 1 and is_constant(a))
        )
        return plain(self, *arrays, **how)

    monkeypatch.setattr(Kernel, "__call__", watched)
    runner([5, 9], 1)
    assert OF_A_ROW <= found <= OF_A_ROW | ONCE | TINY_WEIGHTS


def test_a_plan_of_one_row_holds_longer_arrays() -> None:
    config = Runner(EXAMPLE).config
    plan = Planner(config).build([Window(0, 5, [7], [0], [0])], 1, 1)
    some = [plan.segment, *(part.visible for part in plan.compressed.values())]
    assert all(a.nbytes >= 16 for a in some) and plan.owner.tolist() == [0]
    assert plan.compressed[1].visible.tolist() == [6] + [0] * (LEAST - 1)


def test_constants_are_made_once_and_keep_their_values() -> None:
    made = constant(np.int32, 5, -3)
    assert made.tolist() == [5, -3] and made.dtype == mx.int32 and constant(np.int32, 5, -3) is made
    assert constant(np.float32, *range(9)).tolist() == list(range(9))
    assert padded(np.arange(6)).tolist() == [*range(6)] and padded(np.arange(1, 3)).tolist() == [1, 2, 0, 0]
