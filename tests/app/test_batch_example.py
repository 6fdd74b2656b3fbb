"""examples/batch.py: every line once, through bad lines and crashes, faster with more slots."""

from __future__ import annotations

import io
import json
import runpy
import time
from pathlib import Path
from typing import Any

import pytest

from tensorfold import Generation, Model
from tests.app.kit import EXAMPLES, run, start

LINES = [
    '{"prompt": "import os\\n", "id": "a"}',
    "not json",
    "",
    '{"prompt": [0, 5, 6], "temperature": 1, "seed": 4, "max_tokens": 5}',
    '{"prompt": "x", "max_tokens": -1}',
    '{"text": "x"}',
    '{"prompt": "And the LORD ", "max_tokens": 7}',
]


def rows(path: Path) -> dict[int, dict[str, Any]]:
    made = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({row["line"] for row in made}) == len(made), "a line was done twice"
    return {row["line"]: row for row in made}


def test_good_lines_are_done_and_bad_ones_reported(tmp_path: Path, model: Model) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join(LINES), encoding="utf-8")
    status, out, err = run("batch.py", "in.jsonl", "out.jsonl", "--max-tokens", 6, "--slots", 2, cwd=tmp_path)
    assert status == 1 and out == "" and "3 lines done, 3 bad, 0 were there already" in err and "tokens/s" in err
    made = rows(tmp_path / "out.jsonl")
    assert sorted(made) == [1, 2, 4, 5, 6, 7]
    assert "line 2 skipped: not JSON" in err and "max_tokens=-1" in made[5]["error"] and '"prompt"' in made[6]["error"]
    want = model.generate("import os\n", max_tokens=6)
    assert isinstance(want, Generation) and (made[1]["text"], made[1]["tokens"]) == (want.text, want.tokens)
    assert made[1]["id"] == "a" and made[4]["seed"] == 4 and len(made[7]["tokens"]) == 7


def test_after_a_crash_it_goes_on_without_repeating_or_losing_a_line(tmp_path: Path) -> None:
    prompts = [json.dumps({"prompt": f"number {i} ", "max_tokens": 4 + i % 3}) for i in range(16)]
    (tmp_path / "in.jsonl").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    process = start("batch.py", "in.jsonl", "out.jsonl", "--slots", 3, "--quiet", cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (out.exists() and out.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    before = out.read_bytes()
    assert 3 <= before.count(b"\n") < 16
    with out.open("ab") as file:
        file.write(b'{"line": 16, "text": "torn')  # what a crash in the middle of a write leaves
    status, _, err = run("batch.py", "in.jsonl", "out.jsonl", "--quiet", cwd=tmp_path)
    assert status == 0 and f"{before.count(bytes([10]))} were there already" in err
    assert out.read_bytes().startswith(before) and sorted(rows(out)) == list(range(1, 17))


def test_a_file_with_bad_lines_is_not_a_success_however_often_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 7}\n' + "[" * 100_000 + "\n", encoding="utf-8")
    first, again = (run("batch.py", "in.jsonl", "out.jsonl", "--quiet", cwd=tmp_path) for _ in range(2))
    assert (first[0], again[0]) == (1, 1) and "2 bad, 0 were" in first[2] and "0 bad, 2 were" in again[2]
    made = rows(tmp_path / "out.jsonl")
    assert made[1]["id"] == 7 and "not JSON" in made[2]["error"]


def test_a_lone_surrogate_comes_back_as_it_came_and_a_byte_order_mark_is_no_line(tmp_path: Path) -> None:
    line = b'\xef\xbb\xbf{"prompt": "x", "id": "\\ud800 \xe4\xba\xac"}\n{"prompt": "x", "id": "\xff"}\n'
    (tmp_path / "in.jsonl").write_bytes(line)
    status, _, err = run("batch.py", "in.jsonl", "out.jsonl", "--max-tokens", 2, "--quiet", cwd=tmp_path)
    assert status == 0 and "2 lines done" in err
    made = rows(tmp_path / "out.jsonl")
    assert (made[1]["id"], made[2]["id"]) == ("\ud800 \u4eac", "\udcff")


@pytest.mark.parametrize(
    "held", [b"a diary\n", b"[1]\n", b'{"text": "x"}\n', b'{"line": 1, "text": "x"}\nnot ours, and no end', b"\xff"]
)
def test_a_file_of_others_is_refused_and_left_alone(tmp_path: Path, held: bytes) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"prompt": "x"}\n')
    (tmp_path / "out.jsonl").write_bytes(held)
    status, _, err = run("batch.py", "in.jsonl", "out.jsonl", cwd=tmp_path)
    assert (status, err) == (1, "batch.py: out.jsonl holds lines that batch.py did not write: choose another output\n")
    assert (tmp_path / "out.jsonl").read_bytes() == held


def test_the_input_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    (tmp_path / "link").symlink_to("in.jsonl")
    for out in ("in.jsonl", "link"):
        status, _, err = run("batch.py", "in.jsonl", out, cwd=tmp_path)
        assert (status, err) == (1, f"batch.py: {out} is the input too: choose another output\n")


def test_prompts_may_come_through_a_pipe(tmp_path: Path) -> None:
    said = '{"prompt": "x"}\n{"prompt": "y"}'
    status, _, err = run("batch.py", "/dev/stdin", "out.jsonl", "--max-tokens", 2, cwd=tmp_path, said=said)
    assert status == 0 and "2 lines done" in err and sorted(rows(tmp_path / "out.jsonl")) == [1, 2]


def test_eight_slots_are_at_least_as_fast_as_one(model: Model) -> None:
    example = runpy.run_path(str(EXAMPLES / "batch.py"))

    class NoBar:
        def set_postfix_str(self, *_: Any, **__: Any) -> None: ...
        def update(self) -> None: ...

    def rate(slots: int) -> float:
        out = io.StringIO()
        todo = iter([(i, json.dumps({"prompt": f"chapter {i} ", "logit_bias": {"1": -100}})) for i in range(1, 9)])
        begun = time.process_time()  # not disturbed by what else the machine does
        assert example["run"](model, todo, out, slots, {"max_tokens": 6}, NoBar()) == 0
        assert sum(len(json.loads(line)["tokens"]) for line in out.getvalue().splitlines()) == 8 * 6
        return 8 * 6 / (time.process_time() - begun)

    rate(8)  # the first run of a shape compiles it
    eight, one = rate(8), rate(1)
    assert eight >= one, f"{eight:.1f} tokens a second with eight slots, {one:.1f} with one"


def test_errors_are_one_line_and_help_names_every_option(tmp_path: Path) -> None:
    status, _, err = run("batch.py", "absent.jsonl", "out.jsonl", cwd=tmp_path)
    assert status == 1 and err.count("\n") == 1 and "absent.jsonl" in err
    status, out, _ = run("batch.py", "-h", cwd=tmp_path)
    assert status == 0 and all(name in out for name in ("input", "output", "--slots", "--max-tokens", "--quiet"))
