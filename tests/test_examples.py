"""examples/generate.py as a user runs it: a process of its own, in another folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tensorfold

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "generate.py"


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, encoding="utf-8", timeout=300,
    )  # fmt: skip


def test_it_streams_a_reply_and_prints_the_stats(tmp_path: Path) -> None:
    done = run(tmp_path, "import os\nimport ", "--max-tokens", "12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("import os\nimport ") and len(done.stdout) > 20
    for name in ("prompt", "reply  12 tokens", "rounds", "drafts", "memory", "seed", "sha256"):
        assert name in done.stderr
    plain = run(tmp_path, "import os\nimport ", "--max-tokens", "12", "--no-draft")
    assert plain.stdout == done.stdout and "0 of 0 accepted" in plain.stderr


def test_a_seed_makes_a_sampled_reply_repeatable(tmp_path: Path) -> None:
    options = ("--max-tokens", "6", "--temperature", "1", "--seed", "0")
    first, again = (run(tmp_path, "And the LORD ", *options) for _ in range(2))
    assert first.returncode == 0 and first.stdout == again.stdout and "seed  0" in first.stderr


def test_help_names_every_option(tmp_path: Path) -> None:
    text = run(tmp_path, "-h").stdout
    options = ("prompt", "--model", "--max-tokens", "--temperature", "--seed", "--no-draft")
    assert all(option in text for option in options)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("x", "--max-tokens", "0"), "max_tokens=0 must be at least 1"),
        (("x", "--temperature", "nan"), "temperature=nan must lie in 0"),
        (("x", "--seed", "-1"), "seed=-1 must be in 0.."),
        (("x", "--max-tokens", "5000"), "the context holds 4096"),
        (("x", "--model", "nowhere"), "nowhere"),
    ],
)
def test_errors_are_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 1 and done.stdout == ""
    assert message in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") <= 3


def test_it_is_short() -> None:
    assert len(SCRIPT.read_text().splitlines()) < 80


def test_the_readmes_api_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten lines, as they stand; only the path of the checkpoint is made absolute."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1 and len(blocks[0].splitlines()) == 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks[0].replace("examples/tiny-v41", str(ROOT / "examples/tiny-v41")), names)
    assert len(names["outs"]) == 2 and names["a"].done and names["c"].tokens == []
    assert names["d"].tokens == names["a"].tokens


def test_the_readmes_lines_for_a_server_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## In a server\n")[1]
    names: dict[str, Any] = {"threading": threading}
    with tensorfold.Model.load(ROOT / "examples" / "tiny-v41") as names["model"]:
        exec(text.split("```")[1], names)
        assert repr(names["model"]).endswith(" 0 slots open)")
        names["stop"].set()
        assert names["model"].generate("a", cancel=names["stop"]).finish_reason == "cancelled"
    assert len(names["out"].tokens) == 20 and [out.error for out in names["outs"]] == [None, None]
    assert names["piece"].finish_reason == "length"


def test_the_readmes_commands_name_what_there_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 4 and all(".venv/bin/pip install" in c for c in commands)
    assert sum("examples/generate.py" in c for c in commands) == sum("-m pytest" in c for c in commands) == 2
