"""A model that runs brings nothing of the proof along, and the proof's commands are there from a wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.goldens import EXAMPLE

ROOT = Path(__file__).resolve().parents[1]
GENERATE = """
import sys
import tensorfold as tf
from tensorfold import kernels
with tf.Model.load(sys.argv[1], progress=False) as model:
    assert model.generate("def fib(n):", max_tokens=3).tokens
assert len(kernels.all_kernels()) > 30  # what a model on kernels runs is imported, too
print(*sorted(name for name in sys.modules if name.startswith("tensorfold.")))
"""


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_that_runs_imports_no_proof() -> None:
    names = python("-c", GENERATE, str(EXAMPLE)).split()
    assert "tensorfold.kernels.rms_norm.plan" in names and "tensorfold.backend.kernels" in names
    assert [n for n in names if n.startswith(("tensorfold.proof", "tensorfold.receipt", "tensorfold.contract"))] == []


@pytest.mark.parametrize("command", ["tensorfold.contract", "tensorfold.receipt"])
def test_commands_of_the_proof(command: str) -> None:
    assert f"python -m {command}" in python("-m", command, "--help")
