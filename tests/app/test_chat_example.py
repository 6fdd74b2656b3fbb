"""examples/chat.py: a session of several turns that an interrupt does not end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.app.kit import run, start

pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")


def test_two_turns_and_the_second_reuses_the_first(tmp_path: Path) -> None:
    status, out, err = run("chat.py", cwd=tmp_path, said="define: dog\n\nuse the noun dog in a sentence\n")
    assert (status, err) == (0, "")
    first, second = [line for line in out.splitlines() if "prompt tokens reused" in line]
    assert " 0 of 9 prompt tokens reused" in first and " 0 of " not in second
    assert "a female" in out


def test_thinking_with_a_system_message(tmp_path: Path) -> None:
    said = "define: dog\n"
    status, out, err = run(
        "chat.py", "--think", "--effort", "20", "--system", "Be brief.", "--max-tokens", 2, cwd=tmp_path, said=said
    )
    assert (status, err) == (0, "") and "[2 tokens" in out


def test_a_full_context_keeps_the_session(tmp_path: Path) -> None:
    said = f"define: dog\n{'a b c d ' * 1500}\nuse the noun dog in a sentence\n/new\ndefine: dog\n"
    status, out, err = run("chat.py", cwd=tmp_path, said=said)
    assert (status, err) == (0, "") and "the context holds 4096" in out and "/new" in out
    first, second, third = [line for line in out.splitlines() if "prompt tokens reused" in line]
    assert " 0 of 9 " in first and " 0 of " not in second and " of 9 " in third


def test_ctrl_c_stops_the_reply_and_keeps_the_session(tmp_path: Path) -> None:
    process = start("chat.py", "--temperature", "1", "--seed", "1", "--max-tokens", "80", cwd=tmp_path)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("complete: def read_lines(path):\n")
    process.stdin.flush()
    assert process.stdout.read(12).startswith("> ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate("define: cat\n", timeout=300)
    assert process.returncode == 0 and err == ""
    assert "[interrupted]" in out and out.count("prompt tokens reused") == 1


def test_errors_are_one_line_and_help_names_every_option(tmp_path: Path) -> None:
    status, _, err = run("chat.py", "--temperature", "nan", cwd=tmp_path, said="hi\n")
    assert status == 1 and err == "chat.py: temperature=nan must lie in 0..1e+37 (0 is greedy)\n"
    status, out, _ = run("chat.py", "-h", cwd=tmp_path)
    assert status == 0 and all(
        f"--{name}" in out for name in ("model", "system", "think", "effort", "max-tokens", "seed")
    )
