"""The two checkpoints of the engine's tests, loaded once, and their undrafted solo replies, computed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorfold import Model
from tests.engine.kit import CALM, TRAINED, References


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str | None:
    """What `--backend` names, or None: this machine's own."""
    return request.config.getoption("--backend")


@pytest.fixture(scope="session")
def calm(backend: str | None) -> Iterator[Model]:
    """Random weights, window 16, drafts fixed, nothing kept between prompts."""
    with Model.load(CALM, backend=backend, draft_policy="fixed", prefix_bytes=0) as model:
        yield model


@pytest.fixture(scope="session")
def trained(backend: str | None) -> Iterator[Model]:
    """Trained weights, window 32, drafts fixed, nothing kept between prompts."""
    with Model.load(TRAINED, backend=backend, draft_policy="fixed", prefix_bytes=0) as model:
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
            model._life.worker.run(lambda m=model, s=slot: m._engine.close(s))
