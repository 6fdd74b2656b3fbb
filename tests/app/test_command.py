"""The `tensorfold` command: each of its commands on the tiny checkpoint, its errors and its statuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.goldens import EXAMPLE


def run(*words: object, said: str = "", cwd: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tensorfold", *map(str, words)], input=said, capture_output=True, text=True, cwd=cwd
    )
    return done.returncode, done.stdout, done.stderr


def test_generate_prints_the_reply_and_then_what_it_took(tmp_path: Path) -> None:
    words = "generate", "--model", EXAMPLE, "--max-tokens", 8
    status, out, err = run(*words, "import os\n", cwd=tmp_path)
    assert status == 0 and out.strip() and "8 tokens" in err and "sha256" in err
    assert run(*words, "--quiet", "-", said="import os\n", cwd=tmp_path) == (0, out, "")


def test_chat_answers_what_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    status, out, err = run("chat", "--model", EXAMPLE, "--max-tokens", 8, said="define: dog\n", cwd=tmp_path)
    assert (status, err) == (0, "") and "[8 tokens" in out


def test_describe_prints_the_table(tmp_path: Path) -> None:
    status, out, err = run("describe", EXAMPLE, cwd=tmp_path)
    assert (status, err) == (0, "") and "Layers and roles" in out


def test_bench_says_how_fast_with_drafts_off_and_on(tmp_path: Path) -> None:
    status, out, err = run(
        "bench", "--model", EXAMPLE, "--prompt-tokens", 16, "--tokens", 6, "--slots", 2, cwd=tmp_path
    )
    lines = out.splitlines()
    assert (status, err) == (0, "") and len(lines) == 3
    assert lines[1].startswith("drafts off:") and lines[2].startswith("drafts on:") and "2 x 16" in lines[0]


def test_receipt_has_its_own_arguments(tmp_path: Path) -> None:
    status, out, _ = run("receipt", "-h", cwd=tmp_path)
    assert status == 0 and "--write-digests" in out


@pytest.mark.parametrize(
    "words, status, said",
    [
        ((), 2, "COMMAND"),
        (("generate", "text"), 2, "--model"),
        (("generate", "--model", "no/where/at/all", "text"), 1, "no such folder"),
        (("generate", "--model", EXAMPLE, "--temperature", "nan", "text"), 1, "temperature=nan"),
    ],
)
def test_errors_are_words(words: tuple[object, ...], status: int, said: str, tmp_path: Path) -> None:
    code, out, err = run(*words, cwd=tmp_path)
    assert code == status and said in err and "Traceback" not in err and out == ""
