"""Runs an example as a user does: a process of its own, in another folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def start(name: str, *arguments: object, cwd: Path, shell: str = "", **variables: str) -> subprocess.Popen[str]:
    """shell: redirections as a shell takes them (`2>&-`). variables: of the environment."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *command] if shell else command,
        cwd=cwd, env=ENVIRONMENT | variables, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8",
    )  # fmt: skip


def run(name: str, *arguments: object, cwd: Path, said: str = "", **options: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr; options as in `start`."""
    process = start(name, *arguments, cwd=cwd, **options)
    out, err = process.communicate(said, timeout=300)
    return process.returncode, out, err
