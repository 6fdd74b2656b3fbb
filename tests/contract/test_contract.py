"""The contract holds on the host for every registered kernel, and its command line says so in the stated words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorfold.proof import families
from tensorfold.proof.contract import command
from tensorfold.proof.contract.jobs import run_all
from tensorfold.proof.contract.report import Result
from tensorfold.proof.host import clang
from tests.support.hostkit import needs_clang


@pytest.fixture(scope="session")
def results() -> dict[str, Result]:
    """Every kernel's, a process a core: most of the time goes to the compiler."""
    every = list(families.all_proofs().values())
    return {proof.name: result for proof, result in zip(every, run_all(every, "host", os.cpu_count() or 1))}


@needs_clang
@pytest.mark.parametrize("name", families.all_proofs())
def test_contract(name: str, results: dict[str, Result]) -> None:
    result = results[name]
    assert result.ok, result.line()
    assert len(result.red) >= 2 and result.runs > 0


@needs_clang
def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert command.main(["--only", "rms_norm", "--json", str(path)]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    count = len(families.get("rms_norm").mistakes)
    assert len(lines) == 2 and lines[0].startswith("rms_norm ") and " pass " in lines[0]
    assert lines[1] == (
        "SUMMARY host: 1 kernels: 1 pass gates 1-4, 0 fail, 0 known findings; "
        f"{count} controls: {count} red as planted, 0 missed; 0 limit problems"
    )
    written = json.loads(path.read_text())
    assert written["kernels"][0]["ok"] and len(written["kernels"][0]["digest"]) == 64


@needs_clang
def test_a_failing_kernel_is_exit_code_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rms = families.get("rms_norm")
    bad = rms.planted(rms.mistakes[0])
    monkeypatch.setattr(command, "all_proofs", lambda: {"rms_norm": bad})
    assert command.main([]) == 1
    out = capsys.readouterr().out
    assert " FAIL " in out and "0 pass gates 1-4, 1 fail" in out


def test_list_and_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(families.all_proofs())
    assert command.main(["--only", "nothing*"]) == 2
    assert "no kernel matches nothing*" in capsys.readouterr().err


def test_without_clang_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorfold.kernels import launch

    launch.launcher.cache_clear()
    monkeypatch.setattr(clang, "find_clang", lambda: None)
    assert command.main(["--only", "rope"]) == 2
    assert "apt-get install clang-19" in capsys.readouterr().err
    launch.launcher.cache_clear()
