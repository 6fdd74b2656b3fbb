"""The benchmarks run, write their receipts, and exit with 1 when a token differs; knows no numbers they measure."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import decode_layer, kernels
from benchmarks.chart import HEIGHT, WIDTH, line_chart
from tests.support.hostkit import needs_clang

ROOT = Path(__file__).resolve().parents[2]
QUICK = {
    "vs_mlx_lm": [],
    "drafting": ["--domains", "code"],
    "concurrent": ["--serial"],
    "prompt": ["--require-cold"],
    "soak": [],
    "streaming": [],
}

# a mistake planted before the benchmark starts, and the benchmark that must see it
ANY_DRAFT = """
from tensorfold.engine import lanes
from tensorfold.engine.verify import judge
import dataclasses, mlx.core as mx
def careless(picked, segments):
    v, width = judge(picked, segments), max(s.drafts for s in segments)
    count = mx.array([s.drafts for s in segments])[:, None]
    drafts = mx.array([[*s.drafted, *[-1] * (width + 1 - s.drafts)] for s in segments], mx.int32)
    drawn = mx.where(mx.arange(width + 1)[None] == count, v.last[:, None], drafts)
    tokens = mx.where(mx.array([[s.draws] for s in segments]), drawn, v.tokens)
    kept = mx.array([s.rows for s in segments], mx.int32)
    return dataclasses.replace(v, kept=kept, tokens=tokens)
lanes.judge = careless
"""
COMPANY = """
from tensorfold.engine.slot import Slot
take = Slot._take
def other(self, outcome):
    if self.place > 0 and not self.tokens:
        outcome = type(outcome)([7] * len(outcome.tokens), outcome.finite, outcome.logprobs)
    return take(self, outcome)
Slot._take = other
"""
NOT_COLD = """
from tensorfold.engine.engine import Engine
reuse = Engine._reuse
def warm(self, slot):
    reuse(self, slot)
    slot.stats.reused_tokens += 1
Engine._reuse = warm
"""
BAD_RESUME = """
from tensorfold.engine.engine import Engine
reuse = Engine._reuse
def skewed(self, slot):
    reuse(self, slot)
    if slot.committed:
        slot.ids[-1] = 9
Engine._reuse = skewed
"""
PLANTED = {
    "drafting: any draft is taken": ("drafting", ["--domains", "chat", "--policies", "fixed"], ANY_DRAFT),
    "soak: any draft is taken": ("soak", [], ANY_DRAFT),
    "concurrent: a second slot draws other tokens": ("concurrent", ["--alone"], COMPANY),
    "prompt: the cold run was not cold": ("prompt", ["--require-cold"], NOT_COLD),
    "prompt: a kept prefix changes the reply": ("prompt", [], BAD_RESUME),
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_help_of_every_benchmark_says_what_it_does() -> None:
    every = [[sys.executable, f"benchmarks/{name}.py", "-h"] for name in QUICK]
    started = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for words in every]
    for process in started:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "--quick" in out and "--json" in out


@pytest.mark.parametrize("name", QUICK)
def test_quick_form_runs_and_writes_a_receipt(name: str, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    done = run(f"benchmarks/{name}.py", "--quick", "--json", str(file), *QUICK[name])
    assert done.returncode == 0, done.stderr
    receipt = json.loads(file.read_text())
    assert receipt.keys() >= {"command", "platform", "checkpoint", "counts", "token_sha"}
    assert receipt["checkpoint"]["label"] == "tiny"
    assert len(receipt["token_sha"]) == 64
    assert receipt["command"].startswith(f"python benchmarks/{name}.py --quick --json receipt.json")
    assert str(tmp_path) not in file.read_text() and platform.node() not in receipt["platform"].values()


@pytest.mark.parametrize("what", PLANTED)
def test_planted_mistake_makes_the_exit_status_1(what: str) -> None:
    name, extra, mistake = PLANTED[what]
    words = [f"benchmarks/{name}.py", "--quick", *extra]
    start = f"import runpy, sys\n{mistake}\nsys.argv = {words!r}\nrunpy.run_path({words[0]!r}, run_name='__main__')"
    done = run("-c", start)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@needs_clang
@pytest.mark.parametrize(
    "name, words", [("decode_layer", ["--rows", "1,3", "--layers", "0,2"]), ("kernels", ["--only", "wo_a"])]
)
def test_kernel_benchmarks_write_table_plot_and_numbers(name: str, words: list[str], tmp_path: Path) -> None:
    done = run(f"benchmarks/{name}.py", "--quick", *words, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / f"{name}_quick.json").read_text())
    assert found["quick"] and len(found["lines"]) >= 2 and all(line["us"] > 0 for line in found["lines"])
    assert "smoke run" in (tmp_path / f"{name}_quick.md").read_text()
    chart = ElementTree.parse(tmp_path / f"{name}_quick.svg").getroot()
    assert len(chart.findall("{http://www.w3.org/2000/svg}polyline")) >= 1


@needs_clang
def test_decode_layer_says_why_mlx_lm_was_not_timed(tmp_path: Path) -> None:
    words = ["benchmarks/decode_layer.py", "--quick", "--rows", "1", "--layers", "0", "--out", str(tmp_path)]
    hidden = "import runpy, sys\nsys.modules['mlx_lm'] = None"  # as if it were not installed
    done = run("-c", f"{hidden}\nsys.argv = {words!r}\nrunpy.run_path({words[0]!r}, run_name='__main__')")
    assert done.returncode == 0, done.stderr
    table, foot = (tmp_path / "decode_layer_quick.md").read_text().split("\n\n")[1:]
    assert len(table.splitlines()) == 3 and foot.startswith("mlx-lm's layers were not timed: mlx-lm is not installed")
    assert "not installed" in json.loads((tmp_path / "decode_layer_quick.json").read_text())["mlx_lm"]["not_timed"]


@needs_clang
@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="needs mlx-lm (pip install -e '.[bench]')")
def test_decode_layer_times_mlx_lm_beside_ours(tmp_path: Path) -> None:
    done = run("benchmarks/decode_layer.py", "--quick", "--rows", "1,3", "--layers", "1,2,3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "decode_layer_quick.json").read_text())
    lines = found["mlx_lm"]["lines"]
    assert [(one["layer"], one["rows"]) for one in lines] == [(2, 1), (2, 3), (3, 1), (3, 3)]  # 1 has Engram
    assert all(one["mlx_lm_us"] > 0 and one["ours_us"] > 0 for one in lines)
    assert "| layer | role | rows | mlx-lm us | ours us | times |" in (tmp_path / "decode_layer_quick.md").read_text()


def test_decode_layer_refuses_a_folder_without_mlx_lm(tmp_path: Path) -> None:
    done = run("benchmarks/decode_layer.py", "--quick", "--mlx-lm", str(tmp_path), "--out", str(tmp_path))
    assert done.returncode == 2 and "holds no folder mlx_lm" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("log", [False, True])
def test_a_chart_has_every_line_inside_its_frame(log: bool) -> None:
    series = {"a & b": [[(1, 2.0), (4, 8.0), (16, 4.0)], [(1, 3.0)]], "c": [[(1, 1.0), (16, 10.0)]]}
    chart = ElementTree.fromstring(line_chart("title", "x", "y", series, log))
    lines = chart.findall("{http://www.w3.org/2000/svg}polyline")
    places = [tuple(map(float, p.split(","))) for line in lines for p in line.get("points", "").split()]
    assert len(lines) == 3 and len(places) == 6 and [line.get("stroke-dasharray") is None for line in lines][1] is False
    assert lines[0].get("stroke") == lines[1].get("stroke") != lines[2].get("stroke")
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert places[4][1] > places[0][1] > places[1][1] > places[5][1]  # larger is higher
    with pytest.raises(ValueError, match="points"):
        line_chart("title", "x", "y", {})


@pytest.mark.parametrize("name", ["decode_layer", "kernels"])
def test_the_stored_plots_are_those_of_the_stored_numbers(name: str) -> None:
    stored = ROOT / "benchmarks" / "results" / name
    facts = json.loads(stored.with_suffix(".json").read_text(encoding="utf-8"))
    made = kernels.plot(facts) if name == "kernels" else decode_layer.plot(facts, facts["mlx_lm"]["lines"])
    assert stored.with_suffix(".svg").read_text(encoding="utf-8") == made
