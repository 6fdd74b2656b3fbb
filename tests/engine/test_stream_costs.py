"""A step of a stream costs what is new, however long the reply is: counted in bytes that a reader allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tensorfold
from tensorfold import Model
from tests.engine.mock_model import mock_model

LONG = 30_000
READERS: dict[str, Callable[..., Iterator[Any]]] = {
    "stream": lambda model, **o: model.stream([5, 6], **o),
    "stream_generate": lambda model, **o: tensorfold.stream_generate(model, [5, 6], **o),
    "read": lambda model, **o: read(model, **o),
}


def read(model: Model, **options: Any) -> Iterator[Any]:
    """As a program that steps by itself."""
    with model.open([5, 6], **options) as handle:
        while True:
            model.step()
            piece = handle.read()
            if piece.tokens:
                yield piece


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """Its rounds write tokens of their own: a long reply at first, then one token each."""
    with mock_model(slots=1, context=10**6) as model:
        lengths = iter([LONG] + [1] * 100)

        def step() -> bool:
            (slot,) = model._slots
            for _ in range(next(lengths)):
                slot.reply.logprobs.append(tensorfold.TokenLogprobs(100, -1.0, ()))
                slot.reply.add(100)
            slot.reply.publish()
            return True

        monkeypatch.setattr(model.desk, "step", step)
        yield model


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_a_step_of_a_long_stream_costs_what_is_new(model: Model, reader: Callable[..., Iterator[Any]]) -> None:
    pieces = reader(model, max_tokens=10**5, logprobs=0)
    seen = 0
    while seen < LONG + 2:
        piece = next(pieces)
        seen += len(piece.tokens) if hasattr(piece, "tokens") else 1
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        piece = next(pieces)
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert piece.text == "a" and piece.logprobs and taken < LONG, "something as long as the reply was copied"
    pieces.close()  # type: ignore[attr-defined]
