"""How a process ends, and what a closed model keeps, when errors and interrupts leave the library, kept or not."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from tensorfold import Model
from tests.app.kit import ENVIRONMENT, EXAMPLES

TINY = os.fspath(EXAMPLES / "tiny-v41")
START = f"""
import _thread, os, signal, sys, threading, time
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


def held() -> int:
    mx.clear_cache()
    return mx.get_active_memory()


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
