"""How every run of the tests is cut and spread: `--full`, `--backend`, and side by side. Knows no test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from tensorfold import loading
from tensorfold.backend.choice import BACKENDS
from tensorfold.backend.ops import OpsBackend

LEFT_OUT = pytest.StashKey[int]()
MOST = 8  # processes: the longest tests take as long beside more


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=BACKENDS, help="what the models of tests/engine run on (default: this machine's own)"
    )
    parser.addoption(
        "--full", action="store_true", help="also tests marked `full`, which repeat at greater length what others hold"
    )


def pytest_configure() -> None:
    """A run in the background ignores interrupts, and so would every program that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Whole folders run in a process a core where pytest-xdist is installed; files, and what a GPU runs, in one."""
    option: Any = config.option
    asked = not config.pluginmanager.hasplugin("xdist") or option.numprocesses is not None or option.dist != "no"
    if asked or hasattr(config, "workerinput") or option.usepdb or option.collectonly:
        return
    folders = all((config.invocation_params.dir / name).is_dir() for name in config.args)
    if folders and mx.default_device() == mx.Device(mx.cpu) and _cores() > 1:
        option.numprocesses, option.dist = min(_cores(), MOST), "worksteal"


def _cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longer = [item for item in items if item.get_closest_marker("full")]
    if longer and not config.option.full:
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=longer)
        config.stash[LEFT_OUT] = len(longer)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of those side by side has ended: each has collected all tests, so one's count is everyone's."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{count} tests that repeat at greater length were left out: --full runs them too")


@pytest.fixture(scope="session", autouse=True)
def plain_rows_are_tried_once() -> Iterator[None]:
    """The row check is most of what a load of a small checkpoint costs: of two loads of one config on plain operations
    the second takes the first's verdict. Tests of the check call it, or have operations of their own."""
    known: dict[tuple[Any, ...], set[str]] = {}
    check = loading.row_dependent_operations

    def tried(network: Any, gather: Any, *told: Any) -> set[str]:
        if type(network.backend) is not OpsBackend:
            return check(network, gather, *told)
        key = network.traceable, network.config
        if key not in known:
            known[key] = check(network, gather, *told)
        return set(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "row_dependent_operations", tried)
        yield
