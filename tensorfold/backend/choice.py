"""Which backend a model runs on: metal on a Mac, cuda where MLX has it, ops otherwise. Knows no network."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.base import Backend
from tensorfold.backend.kernels import KernelBackend
from tensorfold.backend.ops import OpsBackend
from tensorfold.config import ModelConfig
from tensorfold.kernels.launch import BackendError

BACKENDS = ("metal", "cuda", "ops", "host")


def default_backend() -> str:
    """The backend of this machine's default device."""
    if mx.default_device() != mx.Device(mx.gpu):
        return "ops"
    return "metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "ops"


def make_backend(name: str | None, config: ModelConfig) -> Backend:
    """The backend of that name, or this machine's own. Raises BackendError where the machine cannot run it."""
    name = name or default_backend()
    if name == "ops":
        return OpsBackend(config)
    if name == "host":
        import tensorfold.proof.host  # noqa: F401  a proof tool, which no other model needs
    try:
        return KernelBackend(config, name)
    except BackendError as error:
        raise BackendError(f'{error}; backend="ops" runs plain MLX operations') from None
