"""Options of every test run."""

from __future__ import annotations

import pytest

from tensorfold.backend.choice import BACKENDS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=BACKENDS, help="what the models of tests/engine run on (default: this machine's own)"
    )
