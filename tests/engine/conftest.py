"""The two checkpoints of the engine's tests, loaded once, and their undrafted solo replies, computed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorfold import Model
from tests.engine.kit import CALM, TRAINED, References


@pytest.fixture(scope="session")
def calm() -> Iterator[Model]:
    """Random weights, window 16, drafts fixed, nothing kept between prompts."""
    with Model.load(CALM, draft_policy="fixed", prefix_bytes=0) as model:
        yield model


@pytest.fixture(scope="session")
def trained() -> Iterator[Model]:
    """Trained weights, window 32, drafts fixed, nothing kept between prompts."""
    with Model.load(TRAINED, draft_policy="fixed", prefix_bytes=0) as model:
        yield model


@pytest.fixture(scope="session")
def alone(calm: Model) -> References:
    """What each prompt gives on `calm` alone and undrafted."""
    return References(calm)


@pytest.fixture(scope="session")
def alone_trained(trained: Model) -> References:
    return References(trained)


@pytest.fixture(autouse=True)
def nothing_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves a slot of a shared model open would disturb the next."""
    yield
    for name in {"calm", "trained"} & set(request.fixturenames):
        model = request.getfixturevalue(name)
        for slot in list(model._engine.slots):
            model._worker.run(lambda m=model, s=slot: m._engine.close(s))
