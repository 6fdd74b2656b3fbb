"""Every kernel that is kept with what runs is launched by some model, and the few that none needs are named here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from tensorfold import Model, kernels
from tensorfold.backend.kernels import backend as kernel_backend
from tensorfold.kernels import Kernel, Launch, launch
from tensorfold.kernels import kernel as kernel_module
from tests.support.goldens import EXAMPLE

# operations of a backend that no layer of a model needs, because another launch follows or comes before
UNNEEDED = {
    "hc_post": "hc_leave of a sublayer that is not the experts', without what mixes next: experts follow",
    "moe_join": "joined, the experts' sum by itself: moe_leave spreads it at once",
}


class Counting:
    """Launches nothing: outputs of the right shapes, and a count of every kernel."""

    name = "cuda"

    def __init__(self) -> None:
        self.seen = Counter[str]()

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], plan: Launch, init_value: float | None = None
    ) -> list[mx.array]:
        launch.check_types(kernel, arrays, plan)
        self.seen[kernel.name] += 1
        return [(mx.ones if d == mx.bool_ else mx.zeros)(s, d) for s, d in zip(plan.shapes, plan.dtypes)]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counting = Counting()
    for module in (kernel_module, kernel_backend):
        monkeypatch.setattr(module, "launcher", lambda name: counting)
    return counting.seen


def test_models_launch_every_kernel_that_is_kept_with_them(counted: Counter[str]) -> None:
    prompt: Any = [list(range(1, 200))]
    for experts in ("mapped", "streamed"):
        with Model.load(EXAMPLE, backend="cuda", experts=experts, progress=False) as model:
            model.generate(prompt, max_tokens=4)
            model.generate(prompt, max_tokens=4, temperature=0.8, draft=False)
    assert set(kernels.all_kernels()) - counted.keys() == UNNEEDED.keys()
