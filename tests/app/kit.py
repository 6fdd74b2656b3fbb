"""Runs an example as a user does: a process of its own, in another folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def start(name: str, *arguments: object, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8")


def run(name: str, *arguments: object, cwd: Path, said: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    process = start(name, *arguments, cwd=cwd)
    out, err = process.communicate(said, timeout=300)
    return process.returncode, out, err
