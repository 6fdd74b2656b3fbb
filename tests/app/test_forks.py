"""Forked processes: what a child does with its parent's model, and with none, is told at once or works; none hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.kit import ENVIRONMENT, EXAMPLES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

START = f"""
import multiprocessing, os, sys, threading, time
import tensorfold

def load():
    return tensorfold.Model.load({os.fspath(EXAMPLES / "tiny-v41")!r})

def tokens(model):
    return model.generate("a", max_tokens=2).tokens

def forked(deed):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            print("gave", deed())
        except RuntimeError as error:
            print("told", error)
        sys.exit(3)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"
"""
WITH_A_MODEL = """
model = load()
want, handle = tokens(model), model.open("b", max_tokens=4000, logit_bias={1: float("-inf")})
inside, run = [], model._engine.lanes.round

def marked(slots):
    inside.append(0)
    try:
        return run(slots)
    finally:
        inside.clear()

model._engine.lanes.round = marked
threading.Thread(target=lambda: [model.step() for _ in iter(lambda: handle.done, True)]).start()
deeds = [lambda: tokens(model), model.step, handle.cancel, handle.fork, lambda: handle.save("x"), model.memory, load]
deeds += [handle.close, model.close, lambda: model.__exit__(None, None, None), lambda: len(repr(model)) > 9]
for deed in deeds:
    print(forked(deed))
for _ in range(8):
    if (status := forked(lambda: inside)) != 3:
        print(status)
handle.cancel()
print(tokens(model) == want)
"""
WITHOUT = """
print(forked(lambda: tokens(load())))
print(tokens(load()))
"""
POOLS = """
def child(model, answers, deed):
    try:
        answers.put(tokens(model) if deed == "use" else tokens(load()))
    except RuntimeError as error:
        answers.put(str(error))

model = load()
fork = multiprocessing.get_context("fork")
for deed in ("use", "load"):
    answers = fork.SimpleQueue()
    process = fork.Process(target=child, args=(model, answers, deed))
    process.start()
    print(answers.get())
    process.join()
    print(process.exitcode)
"""
ELSEWHERE, USED = "this model was loaded in another process", "this process was forked from one that had used MLX"


def said(script: str, tmp_path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + script], env=ENVIRONMENT, cwd=tmp_path, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_child_is_told_at_once_and_ends_while_its_parent_goes_on(tmp_path: Path) -> None:
    """All of it while a thread of the parent steps; and no child is made in the middle of a round, with its locks."""
    lines = said(WITH_A_MODEL, tmp_path)
    answers, ends = lines[0:22:2], lines[1:22:2]
    assert ends == ["3"] * 11
    assert all(line.startswith(f"told {ELSEWHERE}") and "spawn" in line for line in answers[:6])
    assert answers[6].startswith(f"told {USED}") and "spawn" in answers[6]
    assert answers[7:] == ["gave None"] * 3 + ["gave True"]
    assert lines[22:] == ["gave []"] * 8 + ["True"]


def test_a_child_of_a_process_that_had_not_used_mlx_loads(tmp_path: Path) -> None:
    """As servers do that import an application and then fork; the import alone uses nothing."""
    child, end, parent = said(WITHOUT, tmp_path)
    assert (child, end) == (f"gave {parent}", "3")


def test_processes_of_multiprocessing_that_are_forked_are_told(tmp_path: Path) -> None:
    use, first, load, second = said(POOLS, tmp_path)
    assert use.startswith(ELSEWHERE) and load.startswith(USED) and (first, second) == ("0", "0")
