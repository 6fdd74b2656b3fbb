"""Launchers through MLX: one kernel text run by Metal or by CUDA. Knows no kernel by name.

Both build lazily: a compiler's complaint comes at evaluation, with the .metal file and line in it; `build` forces it at
once and names kernel, backend and line.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import (
    BACKENDS,
    BackendError,
    BuildError,
    Kernel,
    Launch,
    Launcher,
    dtype_of,
    launcher,
    offer,
)

__all__ = [
    "BACKENDS", "BackendError", "BuildError", "Launcher", "MlxLauncher", "build", "check_types", "first_errors",
    "launcher", "offer",
]  # fmt: skip

_ELEMENT = {
    mx.float32: "float", mx.bfloat16: "bfloat16_t", mx.float16: "half", mx.bool_: "bool",
    mx.uint8: "uchar", mx.int8: "char", mx.uint32: "uint", mx.int32: "int", mx.uint64: "ulong", mx.int64: "long",
}  # fmt: skip
_SAME = {
    "uint8_t": "uchar",
    "int8_t": "char",
    "uint32_t": "uint",
    "int32_t": "int",
    "uint64_t": "ulong",
    "int64_t": "long",
}


class MlxLauncher:
    """Through mx.fast.metal_kernel or mx.fast.cuda_kernel; one MLX kernel object a kernel text."""

    def __init__(self, name: str, make: Callable[..., Any]):
        self.name = name
        self._make = make
        self._built: dict[int, tuple[Kernel, Any]] = {}
        self._checked: set[tuple[Any, ...]] = set()

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, init_value: float | None = None
    ) -> list[mx.array]:
        key = (id(kernel), tuple(a.dtype for a in arrays), launch.dtypes)
        if key not in self._checked:
            check_types(kernel, arrays, launch)
            self._checked.add(key)
        held = self._built.get(id(kernel))
        if held is None:
            held = self._built[id(kernel)] = (kernel, self.mlx_kernel(kernel))
        extra = {} if init_value is None else {"init_value": init_value}
        return held[1](
            inputs=list(arrays),
            template=list(launch.template.items()),
            grid=launch.grid,
            threadgroup=launch.threadgroup,
            output_shapes=list(launch.shapes),
            output_dtypes=list(launch.dtypes),
            **extra,
        )

    def mlx_kernel(self, kernel: Kernel) -> Any:
        """The MLX kernel object of this text."""
        header, body = kernel.texts[self.name == "metal"]
        tag = f"_{abs(hash((header, body))):x}" if kernel.overrides else ""
        return self._make(
            name=f"tf_{kernel.name}{tag}",
            input_names=list(kernel.inputs),
            output_names=list(kernel.outputs),
            header=header,
            source=body,
        )


def _metal() -> Launcher:
    if not mx.metal.is_available():
        raise BackendError("the metal backend needs MLX on a Mac with Apple silicon")
    version = platform.mac_ver()[0]
    if version and int(version.split(".")[0]) < 15:
        raise BackendError(f"TensorFold's kernels need Metal 3.2, which comes with macOS 15; this is macOS {version}")
    return MlxLauncher("metal", mx.fast.metal_kernel)


def _cuda() -> Launcher:
    if not mx.cuda.is_available():
        raise BackendError("the cuda backend needs MLX built for CUDA (pip install 'mlx[cuda13]') and an NVIDIA GPU")
    return MlxLauncher("cuda", mx.fast.cuda_kernel)


offer("metal", _metal)
offer("cuda", _cuda)


def check_types(kernel: Kernel, arrays: Sequence[Any], launch: Launch) -> None:
    """TypeError where an array's dtype, a template's names or the launch do not fit the kernel's declaration."""
    text = kernel.text
    if len(arrays) != len(kernel.inputs):
        raise TypeError(
            f"{kernel.name} takes {len(kernel.inputs)} arrays ({', '.join(kernel.inputs)}), got {len(arrays)}"
        )
    if tuple(launch.template) != tuple(name for name, _ in text.template):
        raise TypeError(
            f"{kernel.name}: template {tuple(launch.template)}, expected {tuple(n for n, _ in text.template)}"
        )
    if len(launch.shapes) != len(kernel.outputs) or len(launch.dtypes) != len(kernel.outputs):
        raise TypeError(f"{kernel.name}: the plan gives {len(launch.shapes)} outputs, expected {len(kernel.outputs)}")
    if any(g % t for g, t in zip(launch.grid, launch.threadgroup)):
        raise ValueError(f"{kernel.name}: grid {launch.grid} is not a multiple of the threadgroup {launch.threadgroup}")
    dtypes = [dtype_of(a) for a in arrays] + list(launch.dtypes)
    for parameter, dtype in zip(text.parameters, dtypes):
        declared = re.sub(r"\b(const|device|constant)\b|[ *]", "", parameter.type)
        wanted = launch.template.get(declared)
        if wanted is None:
            fits = _SAME.get(declared, declared) == _ELEMENT[dtype]
        else:
            fits = wanted == dtype
        if not fits:
            raise TypeError(
                f"{kernel.name}: {parameter.name} is declared {declared} ({wanted or ''}), the array is {dtype}"
            )


def build(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, backend: str) -> None:
    """Build and run once, so that a failure names kernel, backend, file and line; raises BuildError."""
    try:
        mx.eval(launcher(backend)(kernel, arrays, launch))
    except RuntimeError as error:
        if isinstance(error, (BackendError, BuildError)):
            raise
        raise BuildError(kernel.name, backend, first_errors(str(error))) from error


def first_errors(message: str, count: int = 3) -> str:
    """The lines of a compiler's output that name an error, or its beginning."""
    lines = [line.strip() for line in message.splitlines() if re.search(r"\berror\b", line)]
    return "\n".join(lines[:count]) if lines else message.strip()[:600]
