"""Every example in a terminal that interrupts it, lacks its letters, goes away or was never there."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.app.kit import run, start

LONG = ("And the LORD ", "--max-tokens", 3000, "--temperature", 1, "--seed", 3)
ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}


def lines(folder: Path, count: int) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(f'{{"prompt": "\u4eac {i} ", "id": "\u4eac"}}\n' for i in range(count)), encoding="utf-8")
    return path


def test_ctrl_c_in_generate(tmp_path: Path) -> None:
    process = start("generate.py", *LONG, cwd=tmp_path)
    assert process.stdout is not None and process.stdout.read(4) == "And "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "generate.py: interrupted\n")


def test_ctrl_c_in_a_batch_leaves_whole_lines_to_go_on_from(tmp_path: Path) -> None:
    lines(tmp_path, 40)
    out = tmp_path / "out.jsonl"
    process = start("batch.py", "in.jsonl", "out.jsonl", "--slots", 2, "--max-tokens", 6, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (out.exists() and out.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130 and "Traceback" not in err
    assert err.endswith("batch.py: interrupted; run it again to go on\n")
    assert 0 < len([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]) < 40


def test_ctrl_c_in_conversations_that_share_a_model(tmp_path: Path) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    process = start("embed_app.py", *map(str, range(40)), "--max-tokens", 400, cwd=tmp_path)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "embed_app.py: interrupted\n")


def test_a_reader_that_goes_away_ends_it_in_silence(tmp_path: Path) -> None:
    process = start("generate.py", *LONG, cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(4) == "And "
    process.stdout.close()
    assert (process.stderr.read(), process.wait(300)) == ("", 141)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    status, _, err = run("generate.py", "x", "--max-tokens", 2, cwd=tmp_path, shell=">/dev/full")
    assert status == 1 and err.startswith("generate.py: [Errno 28]") and err.count("\n") == 1


def test_letters_that_the_terminal_lacks_are_escapes(tmp_path: Path) -> None:
    status, out, err = run("generate.py", "\u4eac def ", "--max-tokens", 3, cwd=tmp_path, **ASCII)
    assert status == 0 and out.startswith("\\u4eac def ") and "Traceback" not in err
    lines(tmp_path, 1)
    status, _, err = run("batch.py", "in.jsonl", "\u4eac.jsonl", "--max-tokens", 2, cwd=tmp_path, **ASCII)
    assert status == 0 and json.loads((tmp_path / "\u4eac.jsonl").read_text(encoding="utf-8"))["id"] == "\u4eac"
    status, _, err = run("batch.py", "\u4eac", "out", cwd=tmp_path, **ASCII)
    assert status == 1 and "\\u4eac" in err and err.count("\n") == 1


def test_a_session_goes_on_in_a_terminal_of_ascii(tmp_path: Path) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    said = "\u4eac\ndefine: dog\n"
    status, out, err = run("chat.py", cwd=tmp_path, said=said, **ASCII)
    assert (status, err) == (0, "") and "lone surrogate" in out and "a female" in out


@pytest.mark.parametrize("shell,want", [("2>&-", ("x", "")), (">&-", ("", "sha256")), ("<&- >&- 2>&-", ("", ""))])
def test_a_stream_that_is_not_there_swallows_what_goes_to_it(
    tmp_path: Path, shell: str, want: tuple[str, str]
) -> None:
    status, out, err = run("generate.py", "x", "--max-tokens", 2, cwd=tmp_path, shell=shell)
    assert status == 0 and want[0] in out and "sha256" not in out and want[1] in err and "Error" not in err
    lines(tmp_path, 1)
    assert run("batch.py", "in.jsonl", "out.jsonl", "--max-tokens", 2, cwd=tmp_path, shell=shell)[0] == 0
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["tokens"]


def test_no_input_ends_a_session(tmp_path: Path) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    assert run("chat.py", cwd=tmp_path, shell="<&-") == (0, "> \n", "")
