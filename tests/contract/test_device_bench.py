"""The gates on a GPU, shown with the host standing in for one: what a GPU can show still turns red."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import pytest

from tensorfold.kernels import Kernel, Launch
from tensorfold.kernels.kernel import as_mlx, as_numpy
from tensorfold.proof import families
from tensorfold.proof.contract import bench
from tensorfold.proof.contract.gates import judge
from tensorfold.proof.contract.report import plant, run_contract
from tensorfold.proof.host import run_host
from tensorfold.proof.proof import Mistake
from tests.support.hostkit import needs_clang

pytestmark = needs_clang
RMS = families.get("rms_norm")
CASES = [c for c in RMS.cases() if c.name in ("K96", "order", "extreme")]
SMALL = replace(RMS, cases=lambda: CASES)


class StandIn:
    """Launches like MLX: outputs may be filled before, nothing else can be chosen."""

    name = "cuda"

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, init_value: float | None = None
    ) -> list[mx.array]:
        poison = 0x3F if init_value else 0
        return [as_mlx(y) for y in run_host(kernel, [as_numpy(a) for a in arrays], launch, poison=poison)]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> bench.DeviceBench:
    monkeypatch.setattr(bench, "launcher", lambda name: StandIn())
    return bench.DeviceBench("cuda")


def test_a_good_kernel_passes_and_controls_are_red(device: bench.DeviceBench) -> None:
    result = run_contract(SMALL, device)
    named = [c.name for c in SMALL.mistakes if "cuda" in c.backends]
    assert result.ok and result.red == named and len(named) >= 2, result.line()
    assert result.digest == run_contract(SMALL, bench.HostBench(), mistakes=False).digest


def test_an_unwritten_element_is_seen(device: bench.DeviceBench) -> None:
    lazy = Mistake("", "i < uint(K); i += 32u * uint(G)", "i + 1u < uint(K); i += 32u * uint(G)")
    bad = SMALL.planted(lazy)
    bad = replace(bad, stated=lambda *a: device.run(bad.kernel, a, bad.kernel.launch(a)))
    found = [f for f in judge(bad, device).findings if f.gate == 4]
    assert found and "not written" in found[0].message


def test_a_build_failure_is_gate_1_and_no_red_control(device: bench.DeviceBench) -> None:
    broken = Mistake("broken", "float mean = ", "float mean = missing + ", "rms.h")
    assert judge(SMALL.planted(broken), device, first_only=True).findings[0].gate == 1
    assert "does not build" in plant(SMALL, broken, device)


def test_shifted_views_start_elsewhere() -> None:
    x = CASES[0].arrays[0]
    view = bench._shifted(x, 3)
    assert view.shape == x.shape and as_numpy(view).tobytes() == x.tobytes()
