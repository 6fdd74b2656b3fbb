"""A backend of kernels, and a checkpoint's network and model on it; a backend that is not here skips, naming why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tensorfold import Model
from tensorfold.kernels.launch import BACKENDS, BackendError, launcher
from tensorfold.proof.host.clang import ClangMissing
from tensorfold.receipt.laws import Laws
from tensorfold.receipt.rows import RowLaw
from tensorfold.receipt.suite import Size, make_runner, size_of
from tests.support.goldens import EXAMPLE


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend of kernels by name."""
    try:
        launcher(request.param)
    except (BackendError, ClangMissing) as missing:
        pytest.skip(str(missing))
    return str(request.param)


@pytest.fixture(scope="session")
def size(backend: str) -> Size:
    """How much is tried on the backend."""
    return size_of(backend)


@pytest.fixture(scope="session")
def row_law(backend: str) -> Iterator[RowLaw]:
    """The trained checkpoint's network on the backend."""
    with closing(make_runner(EXAMPLE, backend)) as runner:
        yield RowLaw(runner)


@pytest.fixture(scope="session")
def model(backend: str) -> Iterator[Model]:
    """The trained checkpoint on the backend, nothing kept between prompts."""
    with Model.load(EXAMPLE, backend=backend, prefix_bytes=0, draft_policy="fixed") as loaded:
        yield loaded


@pytest.fixture(scope="session")
def laws(model: Model, size: Size) -> Laws:
    """Prompts, and their replies alone, computed once."""
    return Laws(model, size.prompts, size.tokens)
