"""The receipt says what holds: stored digests are the host's bits, errors come verbatim, any fault is exit code 1."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorfold.proof import families
from tensorfold.proof.contract.bench import HostBench
from tensorfold.proof.contract.report import digest, stored_digests
from tensorfold.proof.proof import Mistake, Proof
from tensorfold.receipt import __main__ as command
from tensorfold.receipt import arithmetic, machine, suite
from tensorfold.receipt.kernels import examine
from tests.support.hostkit import needs_clang

RMS = families.get("rms_norm")


@pytest.mark.parametrize("proof", families.all_proofs().values(), ids=lambda k: k.name)
def test_stored_digests_are_the_stated_bits(proof: Proof) -> None:
    stated = [proof.stated(*case.arrays, **case.options) for case in proof.cases()]
    assert stored_digests().get(proof.name) == digest(stated), "run `python -m tensorfold.receipt --write-digests`"


def test_no_digest_without_a_kernel() -> None:
    assert set(stored_digests()) == set(families.all_proofs())


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
    broken = RMS.planted(Mistake("broken", "float r = ", "float r = missing + "))
    monkeypatch.setattr(command, "all_proofs", lambda: {"rms_norm": broken})
    assert command.main(["--backend", "host", "--part", "kernels", "--out", str(tmp_path / "r.json")]) == 1
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


def test_a_device_is_told_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "device_name": "GPU",
        "total_memory": 2**30,
        "uuid": "GPU-1",
        "pci_bus_id": "0:6.0",
        "free_memory": 5,
        "x": [],
    }
    monkeypatch.setattr(machine.mx.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine.mx, "device_info", lambda device: told, raising=False)
    assert machine.describe()["device"] == {"device_name": "GPU", "total_memory": 2**30}


def test_digests_come_from_the_host_alone() -> None:
    with pytest.raises(SystemExit):
        command.main(["--backend", "host", "--only", "rope", "--write-digests"])


# ---- the suite in the receipt


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "all_proofs", dict)


def receipt_of(tmp_path: Path, *arguments: str) -> tuple[int, dict]:
    path = tmp_path / "receipt.json"
    code = command.main(["--backend", "host", "--out", str(path), *arguments])
    return code, json.loads(path.read_text())


@needs_clang
@pytest.mark.parametrize("ok", [True, False])
def test_the_suites_verdict_is_the_receipts(
    ok: bool, no_kernels: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"checkpoint": "tiny-v41", "findings": [{"name": "a law", "ok": ok, "detail": "3 rows"}], "seconds": 1.0}
    found |= {"tokens_per_second": {"one reply": 5.5, "prompt": None}, "ok": ok}
    asked = []
    monkeypatch.setattr(suite, "examine", lambda *a: asked.append(a[:2]) or found)
    code, receipt = receipt_of(tmp_path)
    assert code == 1 - ok and receipt["ok"] == ok and receipt["suite"] == found and asked == [(suite.EXAMPLE, "host")]
    out = capsys.readouterr().out
    assert f"{'pass' if ok else 'FAIL'}  a law: 3 rows" in out and "tokens/s: one reply 5.5\n" in out
    assert f"SUITE tiny-v41: {int(ok)} of 1 hold" in out and out.count("NOT everything holds") == 1 - ok


@needs_clang
def test_without_a_checkout_the_receipt_says_why_no_suite_was_run(
    no_kernels: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "EXAMPLE", tmp_path / "nowhere")
    code, receipt = receipt_of(tmp_path)
    assert code == 0 and "--model" in receipt["suite"]["not_run"]
    assert "the suite was not run: no checkpoint" in capsys.readouterr().out


@needs_clang
def test_kernels_by_name_are_not_a_whole_checkpoint(no_kernels: None, tmp_path: Path) -> None:
    assert receipt_of(tmp_path, "--only", "rope")[1]["suite"] == {"not_run": "only kernels were asked for"}
    assert receipt_of(tmp_path, "--part", "kernels")[1]["suite"] == {"not_run": "only kernels were asked for"}


def test_a_folder_that_is_no_checkpoint_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        command.main(["--model", str(tmp_path)])
    assert "has no config.json" in capsys.readouterr().err


@needs_clang
def test_logits_are_stored_by_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside those of other checkpoints, and nothing else is run."""
    stored = tmp_path / "logits.json"
    stored.write_text('{"other": {"logits": "1", "state": "2"}}')
    monkeypatch.setattr(suite, "STORED", stored)
    found, mine = {"logits": "3", "state": "4"}, SimpleNamespace(identity="mine")
    monkeypatch.setattr(suite, "make_runner", lambda *a: SimpleNamespace(checkpoint=mine, close=list))
    monkeypatch.setattr(suite, "RowLaw", lambda runner: SimpleNamespace(digests=lambda: found))
    assert command.main(["--write-logits"]) == 0
    assert suite.stored_logits() == {"mine": found, "other": {"logits": "1", "state": "2"}}
