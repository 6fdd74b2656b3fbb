"""Small random checkpoints, written once a session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.testing import synthetic

sys.path.insert(0, str(Path(__file__).parent))  # shardkit and hub_server

from shardkit import SMALL, clone  # noqa: E402


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every structural feature in one shard a layer, with an index; not to be changed."""
    folder = tmp_path_factory.mktemp("small") / "model"
    synthetic.write(folder, "tiny", seed=1, **SMALL)
    return folder


@pytest.fixture
def model(small: Path, tmp_path: Path) -> Path:
    """A copy of `small` to plant faults in."""
    return clone(small, tmp_path / "model")


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in one model.safetensors without an index."""
    folder = tmp_path_factory.mktemp("single") / "model"
    synthetic.write(folder, "tiny", seed=1, single_file=True, **SMALL)
    return folder


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New arrays hold no zeros and nothing of old ones, so that what nobody wrote is seen."""
    empty = np.empty

    def filled(*args: Any, **how: Any) -> np.ndarray:
        out = empty(*args, **how)
        out.reshape(-1).view(np.uint8).fill(0xA5)
        return out

    monkeypatch.setattr(np, "empty", filled)
