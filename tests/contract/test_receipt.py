"""The receipt says what holds: stored digests are the host's bits, errors come verbatim, any fault is exit code 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorfold import kernels
from tensorfold.contract.bench import HostBench
from tensorfold.contract.report import digest
from tensorfold.kernels import Control, Kernel
from tensorfold.receipt import __main__ as command
from tensorfold.receipt import arithmetic, machine
from tensorfold.receipt.kernels import examine, stored_digests
from tests.support.hostkit import needs_clang

RMS = kernels.get("rms_norm")


@pytest.mark.parametrize("kernel", kernels.all_kernels().values(), ids=lambda k: k.name)
def test_stored_digests_are_the_stated_bits(kernel: Kernel) -> None:
    stated = [kernel.stated(*case.arrays, **case.options) for case in kernel.cases()]
    assert stored_digests().get(kernel.name) == digest(stated), "run `python -m tensorfold.receipt --write-digests`"


def test_no_digest_without_a_kernel() -> None:
    assert set(stored_digests()) == set(kernels.all_kernels())


@needs_clang
def test_receipt_on_the_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    assert command.main(["--backend", "host", "--only", "rope", "--out", str(path)]) == 0
    receipt = json.loads(path.read_text())
    assert receipt["ok"] and receipt["machine"]["versions"]["mlx"]
    (entry,) = receipt["kernels"]
    assert entry["bits"] == "equal to the host's" and entry["launch_us"] > 0 and entry["compile_error"] is None
    last = capsys.readouterr().out.strip().split("\n")[-2]
    assert last == "RECEIPT host: 1 kernels: 1 build, 1 pass the contract, 1 with the host's bits; everything holds"


@needs_clang
def test_a_compile_error_is_verbatim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = RMS.mutated(Control("broken", "float mean = ", "float mean = missing + "))
    monkeypatch.setattr(command, "all_kernels", lambda: {"rms_norm": broken})
    assert command.main(["--backend", "host", "--out", str(tmp_path / "r.json")]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT BUILD" in out and "use of undeclared identifier 'missing'" in out and "NOT everything holds" in out


@needs_clang
def test_other_bits_are_not_ok() -> None:
    entry = examine(RMS, HostBench(), {"rms_norm": "0" * 64})
    assert entry["bits"] == "DIFFERENT" and not entry["ok"] and entry["passed"]


@needs_clang
def test_arithmetic_of_the_host_is_ieee() -> None:
    answers = list(arithmetic.probe("host").values())
    assert answers[:5] == [0] * 5 and answers[5:] == [1 << 14] * 3


def test_machine_names_no_person_or_place() -> None:
    text = json.dumps(machine.describe())
    assert str(Path.home()) not in text and "mlx" in text


def test_digests_come_from_the_host_alone() -> None:
    with pytest.raises(SystemExit):
        command.main(["--backend", "host", "--only", "rope", "--write-digests"])
