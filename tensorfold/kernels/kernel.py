"""What a kernel is: source, launch plan, truth, stated order, bound and planted mistakes in one object.

Knows no backend: `launch.py` runs kernels, `tensorfold.proof` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.source import KernelText, SourceError, backend_text, included_files, parse

Array = NDArray[Any]
TemplateValue = int | bool | mx.Dtype
Geometry = Mapping[str, int]
ALL = ("host", "cuda", "metal")


@dataclass(frozen=True)
class Launch:
    """One launch: template values by name, grid and threadgroup in threads, and the outputs' shapes and dtypes."""

    template: Mapping[str, TemplateValue]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[mx.Dtype, ...]


@dataclass(frozen=True)
class Bound:
    """|value - truth| <= ulps of the output's type + relative * |truth| + absolute * scale + tiny, and why.

    `scale(*inputs, **options)` gives, for each output, an array that broadcasts against it (default 1). `tiny` is what
    flushing to zero may cost: 2^-126 for the result, and as much for every flushed term of a sum.
    Outputs of integer type must be equal whatever the bound says.
    """

    reason: str
    ulps: float = 0.5
    relative: float = 0.0
    absolute: float = 0.0
    tiny: float = 2.0**-126
    scale: Callable[..., Sequence[Array]] | None = None


@dataclass(frozen=True)
class Control:
    """A planted mistake: `find` stands exactly once in the kernel's text (or in `file`), `replace` takes its place."""

    name: str
    find: str
    replace: str
    file: str | None = None
    backends: tuple[str, ...] = ALL


@dataclass(frozen=True)
class Case:
    """Inputs of one run: numpy arrays in the kernel's order (bfloat16 as uint16 bits) and options of its plan.

    `rows=True` also runs the rows of this case alone, in windows, in other places and at shifted addresses.
    `bounded=False` where float32 itself leaves its range, so that only order and containment are judged.
    """

    name: str
    arrays: tuple[Array, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: bool = False
    bounded: bool = True


@dataclass(frozen=True)
class Kernel:
    """A kernel of one launch.

    plan(arrays, geometry, **options) -> Launch, from shapes and dtypes alone (numpy or MLX arrays).
    reference(*arrays, **options) -> float64 (or integer) arrays, one an output: the published mathematics.
    stated(*arrays, **options) -> the very bits of every output, float32 operations in the order the source states.
    cases() -> the inputs the contract runs. `row_inputs` name the inputs whose first axis is rows; every output then
    has rows first too. `row_counts` are the numbers of rows it is launched with. `alignment` gives inputs that need
    more than their item size, in bytes. `choose(backend, arrays, **options)` picks the index of a geometry; without it
    the first is used. `known` maps a part of a finding's text to the reason why it is accepted.
    """

    name: str
    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    geometries: tuple[Geometry, ...]
    plan: Callable[..., Launch]
    reference: Callable[..., Sequence[Array]]
    stated: Callable[..., Sequence[Array]]
    bound: Bound
    controls: tuple[Control, ...]
    cases: Callable[[], Sequence[Case]]
    row_inputs: tuple[str, ...] = ()
    row_counts: tuple[int, ...] = tuple(range(1, 17))
    alignment: Mapping[str, int] = field(default_factory=dict)
    choose: Callable[..., int] | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

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
        from tensorfold.kernels.launch import launcher

        chosen = self.geometry(backend, arrays, **options) if geometry is None else geometry
        return launcher(backend)(self, arrays, self.plan(arrays, chosen, **options))

    def files(self) -> dict[str, str]:
        """The texts of the source and of what it includes, by file name."""
        return {p.name: self.overrides.get(p.name, p.read_text("ascii")) for p in included_files(self.path)}

    def mutated(self, control: Control) -> Kernel:
        """This kernel with a mistake planted; raises SourceError unless the text to replace stands exactly once."""
        file = control.file or self.path.name
        text = self.files().get(file)
        count = -1 if text is None else text.count(control.find)
        if text is None or count != 1:
            where = f"{count} times in {file}" if count >= 0 else f"but {file} is not part of the kernel"
            raise SourceError(f"{self.name}: control '{control.name}' must match exactly once, matches {where}")
        changed = text.replace(control.find, control.replace)
        return replace(self, overrides={**self.overrides, file: changed})


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
