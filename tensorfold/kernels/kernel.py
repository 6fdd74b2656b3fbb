"""What a kernel is, source, geometries and the plan of a launch in one object, and who launches it.

Knows no backend: `launch.py` offers metal and cuda, `tensorfold.proof` the host, and judges kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.source import KernelText, SourceError, backend_text, parse

Array = NDArray[Any]
TemplateValue = int | bool | mx.Dtype
Geometry = Mapping[str, int]  # numbers of a launch that change no bit: the source explains those of its template
BACKENDS = ("host", "cuda", "metal")


@dataclass(frozen=True)
class Launch:
    """One launch: template values by name, grid and threadgroup in threads, and the outputs' shapes and dtypes."""

    template: Mapping[str, TemplateValue]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[mx.Dtype, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel of one launch: its source, its inputs and outputs in order, and how it is launched.

    plan(arrays, geometry, **options) -> Launch, from shapes and dtypes alone (numpy or MLX arrays). `alignment` gives
    inputs that need more than their item size, in bytes. `choose(backend, arrays, **options)` picks the index of a
    geometry; without it the first is used. `overrides` are texts that stand in for files, by name.
    """

    name: str
    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    geometries: tuple[Geometry, ...]
    plan: Callable[..., Launch]
    alignment: Mapping[str, int] = field(default_factory=dict)
    choose: Callable[..., int] | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> KernelText:
        """The parsed source; raises SourceError where its parameters are not inputs then outputs then attributes."""
        text = parse(self.path, self.overrides)
        buffers = tuple(p.name for p in text.parameters if p.attribute is None)
        if buffers != self.inputs + self.outputs:
            raise SourceError(f"{text.file}: parameters {buffers}, expected {self.inputs + self.outputs}")
        for p in text.parameters:
            if p.attribute is not None and p.attribute != p.name:
                raise SourceError(f"{text.file}: {p.name} must have the name of its attribute {p.attribute}")
        return text

    @cached_property
    def texts(self) -> dict[bool, tuple[str, str]]:
        """(header, body) handed to MLX: at True for Metal and the host, at False for CUDA."""
        return {metal: backend_text(self.text, metal) for metal in (True, False)}

    def launch(self, arrays: Sequence[Any], geometry: Geometry | None = None, **options: Any) -> Launch:
        """The plan for these arrays under `geometry` (default: the first)."""
        return self.plan(arrays, self.geometries[0] if geometry is None else geometry, **options)

    def geometry(self, backend: str, arrays: Sequence[Any], **options: Any) -> Geometry:
        """The geometry this backend uses for these arrays."""
        return self.geometries[self.choose(backend, arrays, **options) if self.choose else 0]

    def __call__(
        self, *arrays: mx.array, backend: str, geometry: Geometry | None = None, **options: Any
    ) -> list[mx.array]:
        """Launch on MLX arrays; returns the outputs, lazily on metal and cuda."""
        chosen = self.geometry(backend, arrays, **options) if geometry is None else geometry
        return launcher(backend)(self, arrays, self.plan(arrays, chosen, **options))


class BackendError(RuntimeError):
    """A backend cannot be used on this machine; the message says what it needs."""


class BuildError(RuntimeError):
    """A kernel did not build: names kernel, backend, file and line, with the compiler's words."""

    def __init__(self, kernel: str, backend: str, message: str):
        self.kernel, self.backend, self.message = kernel, backend, message
        super().__init__(f"kernel {kernel} does not build for {backend}: {message}")


class Launcher(Protocol):
    """Runs one launch; arrays in, arrays out."""

    name: str

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, init_value: float | None = None
    ) -> list[mx.array]: ...


_OFFERED: dict[str, Callable[[], Launcher]] = {}


def offer(backend: str, make: Callable[[], Launcher]) -> None:
    """Have `launcher` give what `make` makes for that backend; `make` raises BackendError where the machine cannot."""
    _OFFERED[backend] = make


@cache
def launcher(backend: str) -> Launcher:
    """The launcher of a backend; BackendError says what is missing on this machine."""
    if backend in _OFFERED:
        return _OFFERED[backend]()
    if backend in BACKENDS:
        raise BackendError(
            f"the {backend} backend is a proof tool: it is there after `import tensorfold.proof.{backend}`"
        )
    raise ValueError(f"unknown backend '{backend}', expected one of {', '.join(BACKENDS)}")


def as_numpy(x: mx.array) -> Array:
    """An MLX array as numpy, bfloat16 as its bits in uint16."""
    return np.array(x.view(mx.uint16)) if x.dtype == mx.bfloat16 else np.array(x)


def as_mlx(x: Array) -> mx.array:
    """A numpy array as MLX, uint16 as bfloat16."""
    y = mx.array(x)
    return y.view(mx.bfloat16) if x.dtype == np.uint16 else y


def dtype_of(x: Any) -> mx.Dtype:
    """The MLX dtype of an MLX array or of a numpy array (uint16 is bfloat16)."""
    if isinstance(x, mx.array):
        return x.dtype
    if x.dtype == np.uint16:
        return mx.bfloat16
    return getattr(mx, "bool_" if x.dtype == np.bool_ else x.dtype.name)
