"""Types and lint: mypy over the package and the examples, ruff over everything."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def check(tool: str, *arguments: str) -> None:
    if find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_complete_and_right() -> None:
    check("mypy", "tensorfold", *map(str, sorted((ROOT / "examples").glob("*.py"))))


def test_lint_is_clean() -> None:
    check("ruff", "check", "tensorfold", "tests", "examples", "benchmarks")


def test_texts_of_kernels_keep_to_120_columns() -> None:
    texts = [p for s in ("metal", "h", "cpp") for p in (ROOT / "tensorfold").rglob(f"*.{s}")]
    found = [f"{p.name}:{n}" for p in texts for n, line in enumerate(p.read_text().split("\n"), 1) if len(line) > 120]
    assert len(texts) > 80 and found == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "tensorfold" / "py.typed").exists()
