"""How a process ends, and what a closed model keeps, when errors and interrupts leave the library, kept or not."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from tensorfold import Model, life
from tensorfold.checkpoint.reader import Checkpoint
from tests.app.kit import ENVIRONMENT, EXAMPLES, start

TINY = os.fspath(EXAMPLES / "tiny-v41")
START = f"""
import os, signal, sys, threading
import tensorfold
from tensorfold.compat import stream_generate

def strike(seconds=0.2):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

model = tensorfold.Model.load({TINY!r})
model.generate("a", max_tokens=2)
"""
KEPT = """
kept = []
too_long = {"max_tokens": 10**6}
calls = [
    lambda: model.generate("a", **too_long), lambda: model.open("a", **too_long), lambda: model.stream("a", **too_long),
    lambda: model.restore(__file__), lambda: model.generate("a", echo=1), lambda: stream_generate(model, "a", echo=1),
    lambda: model.score("a", [5] * 10**4), lambda: model.remember([5] * 10**4),
]
for call in calls:
    try:
        call()
    except (ValueError, TypeError) as error:
        kept.append(error)
sys.exit(7 if len(kept) == len(calls) else 9)
"""
ENDLESS = "max_tokens=4000, logit_bias={1: float('-inf')}"
ENDS = {
    "errors kept in variables": (KEPT, 7, ""),
    "a refusal that nobody catches": ("model.generate('a', max_tokens=10**6)", 1, "CapacityError: 2 prompt tokens"),
    "Ctrl-C in generate": (f"strike(); model.generate('a', {ENDLESS})", -signal.SIGINT, "KeyboardInterrupt"),
    "Ctrl-C in stream": (f"strike(); list(model.stream('a', {ENDLESS}))", -signal.SIGINT, "KeyboardInterrupt"),
    "Ctrl-C in load": (f"strike(0.02); tensorfold.Model.load({TINY!r})", -signal.SIGINT, "KeyboardInterrupt"),
    "Ctrl-C in step": (
        f"slot = model.open('a', {ENDLESS}); strike()\nwhile model.step(): pass", -signal.SIGINT, "KeyboardInterrupt"
    ),
    "Ctrl-C in stream_generate, kept": (
        f"strike()\ntry: list(stream_generate(model, 'a', {ENDLESS}))\nexcept KeyboardInterrupt as e: kept = e", 0, ""
    ),
}  # fmt: skip


@pytest.mark.parametrize("script,code,said", ENDS.values(), ids=list(ENDS))
def test_a_process_ends_with_its_own_code(script: str, code: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(START + script)
    done = subprocess.run(
        [sys.executable, file], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "terminate called" in done.stderr) == (code, False), done.stderr
    assert said in done.stderr and (said or not done.stderr)


def test_ctrl_c_in_the_examples_is_130(tmp_path: Path) -> None:
    """Both at work: the first text is there, the first line is written."""
    (tmp_path / "in").write_text('{"prompt": "a", "max_tokens": 1}\n{"prompt": "a", "max_tokens": 4000}\n' * 8)
    process = start("batch.py", "in", "out", "--quiet", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].startswith("batch.py: interrupted") and process.returncode == 130
    process = start("generate.py", "a", "--max-tokens", 4000, cwd=tmp_path)
    assert process.stdout is not None and process.stdout.read(1) == "a"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].endswith("generate.py: interrupted\n") and process.returncode == 130


def held() -> int:
    mx.clear_cache()
    return mx.get_active_memory()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def failing_callback(done: int, total: int) -> None:
    raise KeyError("mine")


FAULTS: dict[str, Callable[[Model], object]] = {
    "too long": lambda m: m.generate("a", max_tokens=10**6),
    "unknown keyword": lambda m: m.open("a", echo=1),  # type: ignore[call-arg]
    "no saved state": lambda m: m.restore(__file__),
    "callback": lambda m: m.generate("a", max_tokens=5, prompt_progress_callback=failing_callback),
    "round": lambda m: setattr(m._engine.lanes, "guard", lambda: 1 / 0) or m.generate("a"),  # type: ignore[func-returns-value]
}


def test_close_frees_everything_although_tracebacks_are_kept() -> None:
    """Errors of every layer, the deepest of a round on the model's own thread; without a collection, twice."""
    empty, kept = held(), list[BaseException]()
    for _ in range(2):
        model = Model.load(TINY)
        engine, before = model._engine, held()
        for fault in FAULTS.values():
            with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError)) as raised:
                fault(model)
            kept.append(raised.value)
        gc.disable()
        try:
            model.close()
            assert held() - empty < (before - empty) / 100
        finally:
            gc.enable()
        with pytest.raises(RuntimeError, match="closed: load it again"):
            model.generate("a")
        assert not vars(engine), "who still holds the engine holds an empty shell"
    assert len(kept) == 2 * len(FAULTS)


def test_ctrl_c_stops_a_load_at_its_next_layer_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a collection, and the traceback is kept."""
    empty, others = held(), list(life._lives)
    layers, check = list[int](), Checkpoint.check

    def counted(self: Checkpoint) -> None:
        layers.append(len(layers))
        if len(layers) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: all(one.closed for one in life._lives if one not in others))
        check(self)

    monkeypatch.setattr(Checkpoint, "check", counted)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) as kept:
            Model.load(TINY)
        for thread in threading.enumerate():
            if thread.name == "tensorfold" and all(thread is not one.worker._thread for one in others):
                thread.join(60)
        assert len(layers) == 3 and held() <= empty + 10_000 and kept.traceback
    finally:
        gc.enable()


CELLS = [
    "import _thread, threading, mlx.core as mx, tensorfold",
    f"base = mx.get_active_memory(); model = tensorfold.Model.load({TINY!r}); full = mx.get_active_memory() - base",
    "model",
    "model.generate('a', max_tokens=10**6)",
    f"threading.Timer(0.2, _thread.interrupt_main).start(); model.generate('a', {ENDLESS})",
    "model.close()",
    "print('left:', (mx.get_active_memory() - base) / full)",
]


def test_close_frees_everything_in_a_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel keeps the last traceback, and the model itself in Out."""
    for package in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import nbclient
    from nbformat import v4

    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS])
    metadata = {"metadata": {"path": os.fspath(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, resources=metadata).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert [out[0].get("ename") for out in outputs[3:5]] == ["CapacityError", "KeyboardInterrupt"]
    assert not outputs[5] and float(outputs[6][0]["text"].removeprefix("left:")) < 0.01
