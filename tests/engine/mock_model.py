"""A Model over the mock network: everything above the engine is real, and a round costs next to nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tensorfold import Model
from tensorfold.engine.worker import Worker
from tensorfold.life import Life
from tests.engine.mock import CONFIG, Bytes, make


class MockLife(Life):
    """As Life, with an engine of the mock network in place of a load."""

    def __init__(self, **options) -> None:
        self._held, self._closing, self.worker = [], threading.Event(), Worker("mock")
        self.worker.run(lambda: self._held.append(self._parts(make(**options))))

    def _parts(self, engine):
        return SimpleNamespace(
            engine=engine, tokenizer=Bytes(), config=CONFIG, checkpoint=SimpleNamespace(path="mock"), identity="mock",
            progress=False, close=engine.end,
        )  # fmt: skip


@contextmanager
def mock_model(**options) -> Iterator[Model]:
    """options: as `make`'s."""
    with Model(MockLife(**options)) as model:
        yield model
