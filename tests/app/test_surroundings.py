"""A model loads and replies whatever surrounds it: a compiler that cannot, no temporary folder, any stderr or none."""

from __future__ import annotations

import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorfold import Model, progress
from tensorfold.network.row_check import row_dependent_operations
from tests.app.kit import ENVIRONMENT, EXAMPLES
from tests.support.goldens import EXAMPLE

SCRIPT = f"""
import sys
sys.stderr = None
import tensorfold
with tensorfold.Model.load({str(EXAMPLES / "tiny-v41")!r}) as model:
    print(model.generate("def fib(n):", max_tokens=8).stats.token_sha)
"""


def test_a_cpu_compiles_nothing_and_needs_no_temporary_folder(tmp_path: Path, model: Model) -> None:
    """A g++ in reach would cost minutes and choose the bits; a folder that is a file takes nothing, like one that is
    full, read-only or not there."""
    compiler, temporary = tmp_path / "g++", tmp_path / "temporary"
    compiler.write_text(f'#!/bin/sh\necho called >> {tmp_path}/called\ntest "$1" = --version\n')
    compiler.chmod(0o755)
    temporary.touch()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=ENVIRONMENT | {"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}", "TMPDIR": str(temporary)},
    )  # fmt: skip
    want = model.generate("def fib(n):", max_tokens=8).stats.token_sha
    assert (done.returncode, done.stdout, done.stderr) == (0, want + "\n", "")
    assert not (tmp_path / "called").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(Terminal):
    def __init__(self) -> None:
        super().__init__()
        self.close()


class Written:
    """What some programs put in place of stderr."""

    text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


NOBODY = [None, Written(), io.StringIO(), Closed()]


@pytest.mark.parametrize("stream", NOBODY, ids=["none", "object", "file", "closed"])
def test_bars_show_nothing_where_nobody_looks(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.bar(3, "layer", "loading", progress.wanted()) as bar:
        bar.update(3)
    assert not getattr(stream, "text", "") and not (type(stream) is io.StringIO and stream.getvalue())


@pytest.mark.parametrize("stream", [None, Closed()], ids=["none", "closed"])
def test_bars_that_are_asked_for_are_left_out_without_a_stream(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.bar(3, "layer", "loading", progress.wanted(True)) as bar:
        bar.update(3)


def test_a_terminal_sees_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its layers, and the check of its operations where that takes long."""
    monkeypatch.setattr("tensorfold.loading.SLOW_S", 0.0)
    monkeypatch.setattr("tensorfold.loading.row_dependent_operations", row_dependent_operations)  # not once a session
    for asked, looks in ((None, True), (False, False)):
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        Model.load(EXAMPLE, progress=asked).close()
        assert [f"{what}: 100%" in terminal.getvalue() for what in ("loading", "checking")] == [looks, looks]
    assert terminal.getvalue() == ""


def test_a_notebooks_cell_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no terminal; a shell of IPython in a file is neither."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for config, looked in (({"IPKernelApp": {}}, True), ({}, False)):
        shell = SimpleNamespace(config=config)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert progress.wanted() is looked


def test_long_prompts_and_lists_show_how_far_they_are(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the load did; the calls of other threads, which a server's are, show nothing."""
    monkeypatch.setattr("tensorfold.rounds.SLOW_S", 0.0)

    def shown(prompt: str | list[str], bars: bool = True, other: bool = False) -> str:
        monkeypatch.setattr(model.desk, "_bars", bars)
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        with ThreadPoolExecutor(1) as pool:
            call = partial(model.generate, prompt, max_tokens=2)
            pool.submit(call).result() if other else call()
        return terminal.getvalue()

    one, many = shown("a b c"), shown(["a b c", "d", "e f"])
    assert "prompt: 100%" in one and "4/4" in one and "replies" not in one
    assert "prompt: 100%" in many and "replies: 100%" in many and "3/3" in many
    assert shown(["a", "b"], bars=False) == shown(["a", "b"], other=True) == ""
