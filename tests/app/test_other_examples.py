"""examples/embed_app.py, the notebook, and what holds for every example."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold import Generation, Model
from tests.app.kit import ENVIRONMENT, EXAMPLES, ROOT, run


def test_conversations_share_a_model_and_one_is_cancelled(tmp_path: Path) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    status, out, err = run("embed_app.py", "dog", "cat", "--max-tokens", 30, cwd=tmp_path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == ["dog", "dog", "cat", "cat"]
    assert all("prompt tokens reused" in lines[i] and "(0 of" not in lines[i] for i in (1, 3))
    assert lines[4] == "impatient: cancelled, 0 messages kept" and "0 slots open" in lines[5]


def test_a_conversation_of_embed_app_that_is_cancelled_in_line_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    embed = importlib.import_module("embed_app")

    async def turns(model: Model) -> tuple[str, str]:
        ask = [{"role": "user", "content": "define: dog"}]
        with model.open("held"):
            pieces = embed.stream(model, ask, thinking=False, max_tokens=3)
            waiting = asyncio.ensure_future(anext(pieces))
            while not (model._engine._line or waiting.done()):
                await asyncio.sleep(0.01)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            left = f"{len(model._engine._line)} in line, {model!r}"
        last = [piece async for piece in embed.stream(model, ask, thinking=False, max_tokens=3)][-1]
        return left, last.reply.finish_reason

    with Model.load(EXAMPLES / "tiny-v41", max_slots=1) as model:
        left, reason = asyncio.run(turns(model))
    assert left.startswith("0 in line") and left.endswith(" 1 slots open)") and reason in ("stop", "length")


def test_embed_app_help(tmp_path: Path) -> None:
    status, out, _ = run("embed_app.py", "-h", cwd=tmp_path)
    assert status == 0 and "--cancel-after" in out


def test_the_notebook_runs_and_its_first_cell_runs_again_at_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("nbformat", "nbclient", "ipykernel", "deepseek_recipe"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    nbformat.validate(notebook)
    first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    look = nbformat.v4.new_code_cell(
        "import gc, mlx.core as mx\ngc.collect(), mx.clear_cache()\nprint(mx.get_active_memory(), Out)"
    )
    notebook.cells[first + 1 : first + 1] = [look, copy.deepcopy(notebook.cells[first]), copy.deepcopy(look)]
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [json.dumps(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "slots open" in outputs[0] and "GiB" in "".join(outputs)
    once, again = (notebook.cells[first + i].outputs[0]["text"].split(maxsplit=1) for i in (1, 3))
    assert int(again[0]) <= 1.01 * int(once[0]) and "Model" not in once[1] + again[1]


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


def test_same_bits_shows_equal_hashes_however_a_prompt_is_run(tmp_path: Path) -> None:
    status, out, err = run("same_bits.py", "--tokens", 8, cwd=tmp_path)
    lines = out.splitlines()
    assert (status, err, lines[5]) == (0, "", "  all equal")
    assert len({line[39:51] for line in lines[1:5]}) == 1 and all("8 tokens in" in line for line in lines[1:5])
    assert [line[2:7] for line in lines[7:]] == ["numpy", "mlx, ", "mlx, "] and lines[8].count(lines[8][39:51]) == 2


def test_same_bits_says_when_they_are_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    same_bits = importlib.import_module("same_bits")
    monkeypatch.setattr(same_bits, "replies", lambda model, args, path: ["a", "a", "b", "a"])
    monkeypatch.setattr(Model, "load", lambda path, **options: contextlib.nullcontext())
    assert same_bits.main([]) == 1 and "NOT EQUAL" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_no_example_is_over_120_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 120


def test_the_first_text_comes_within_three_seconds_of_the_import(tmp_path: Path) -> None:
    code = (
        "import time; begun = time.perf_counter(); used = time.process_time()\n"
        "import tensorfold\n"
        f"model = tensorfold.Model.load({os.fspath(EXAMPLES / 'tiny-v41')!r})\n"
        "piece = next(p for p in model.stream('def fib(n):', max_tokens=4) if p.text)\n"
        "print(min(time.perf_counter() - begun, time.process_time() - used))\n"
    )
    times = []
    for _ in range(2):  # the first run warms the file cache
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
        )
        times.append(float(done.stdout))
    assert min(times) < 3


def test_a_fresh_process_draws_the_tokens_of_this_one(tmp_path: Path, model: Model) -> None:
    prompt = "And the LORD said "
    want = model.generate(prompt, max_tokens=8, temperature=1, seed=5)
    status, _, err = run("generate.py", prompt, "--max-tokens", 8, "--temperature", 1, "--seed", 5, cwd=tmp_path)
    assert status == 0 and isinstance(want, Generation) and want.stats.token_sha in err
