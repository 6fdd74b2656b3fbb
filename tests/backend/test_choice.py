"""Which backend a model gets: the device's own, the one asked for, or one clear error. Knows no network."""

from __future__ import annotations

import mlx.core as mx
import pytest

import tensorfold
from tensorfold.backend import choice
from tensorfold.backend.ops import OpsBackend
from tensorfold.config import ModelConfig
from tensorfold.kernels.launch import BackendError
from tensorfold.proof.host import HostLauncher
from tests.support.goldens import EXAMPLE
from tests.support.hostkit import needs_clang


@pytest.fixture
def config() -> ModelConfig:
    return ModelConfig.from_folder(EXAMPLE)


@pytest.mark.parametrize(
    "metal, cuda, device, name",
    [
        (True, False, mx.gpu, "metal"),
        (False, True, mx.gpu, "cuda"),
        (False, False, mx.gpu, "ops"),
        (True, False, mx.cpu, "ops"),
    ],
)
def test_the_device_decides(
    metal: bool, cuda: bool, device: mx.DeviceType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice.mx, "default_device", lambda: mx.Device(device))
    monkeypatch.setattr(choice.mx.metal, "is_available", lambda: metal)
    monkeypatch.setattr(choice.mx.cuda, "is_available", lambda: cuda)
    assert choice.default_backend() == name


def test_ops_is_asked_for_by_name(config: ModelConfig) -> None:
    assert isinstance(choice.make_backend("ops", config), OpsBackend)


@pytest.mark.parametrize("name", ["metal", "cuda"])
def test_a_device_that_is_not_there_is_one_error_with_a_way_out(name: str, config: ModelConfig) -> None:
    if (mx.metal if name == "metal" else mx.cuda).is_available():
        pytest.skip(f"needs a machine without {name}")
    with pytest.raises(BackendError, match=f'{name} backend needs .*backend="ops"'):
        choice.make_backend(name, config)
    with pytest.raises(ValueError, match="backend='tpu' is not one of metal, cuda, ops, host"):
        tensorfold.Model.load(EXAMPLE, backend="tpu")


@needs_clang
def test_kernels_that_do_not_build_are_one_error_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's words, and what to do, instead of a traceback at the first token."""

    def broken(*_: object) -> None:
        raise RuntimeError("attend_values.metal:98: error: use of undeclared identifier 'x'\nmore words")

    monkeypatch.setattr(HostLauncher, "__call__", broken)
    with pytest.raises(BackendError, match=r"attend_values.metal:98.*backend=.ops."):
        tensorfold.Model.load(EXAMPLE, backend="host", draft=False)
