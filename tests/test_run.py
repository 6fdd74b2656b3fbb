"""How the tests are run: what repeats at greater length is left out in words, and folders run side by side."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOME = """
import os, pytest
def test_short(): print("process", os.getpid())
@pytest.mark.full
def test_long(): print("process", os.getpid())
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.full)])
def test_some(n): print("process", os.getpid())
"""
LEFT_OUT = "2 tests that repeat at greater length were left out: --full runs them too"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q --strict-markers\nmarkers = full\n")
    (tmp_path / "test_some.py").write_text(SOME)
    return tmp_path


def ran(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-rP", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes(out: str) -> set[str]:
    return {line for line in out.splitlines() if line.startswith("process ")}


def test_what_is_left_out_is_said_and_a_file_runs_in_one_process(folder: Path) -> None:
    out = ran(folder, "test_some.py")
    assert "2 passed, 2 deselected" in out and LEFT_OUT in out and len(processes(out)) == 1


@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist (pip install '.[test]')")
def test_folders_run_side_by_side_and_say_the_same(folder: Path) -> None:
    out = ran(folder, "-n2", "--dist=load")
    assert "2 passed" in out and LEFT_OUT in out and len(processes(out)) == 2


def test_the_full_set_leaves_nothing_out(folder: Path) -> None:
    out = ran(folder, "--full")
    assert "4 passed" in out and "left out" not in out
