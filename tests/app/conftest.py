"""The trained example checkpoint, loaded once with kept prompts and once without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tensorfold import Model
from tests.support.goldens import EXAMPLE


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with Model.load(EXAMPLE, draft_policy="fixed", max_slots=8) as model:
        yield model


@pytest.fixture(scope="session")
def fresh() -> Iterator[Model]:
    """Keeps nothing between prompts, drafts nothing."""
    with Model.load(EXAMPLE, draft=False, prefix_bytes=0, max_slots=4) as model:
        yield model


@pytest.fixture(autouse=True)
def every_slot_is_free_again(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in {"model", "fresh"} & set(request.fixturenames):
        model = request.getfixturevalue(name)
        before = repr(model)  # a failed assertion must not hold the engine: its arrays belong to the model's thread
        for slot in list(model._engine.slots):
            model._life.worker.run(partial(model._engine.close, slot))
        assert before.endswith(" 0 slots open)"), f"{name} was left as {before}"
