"""Kernels on the host: generated Metal text, translated, compiled by clang into a cached object, run by the emulator.

Knows no gate: it says what a kernel gave, or why it could not run.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Array, Kernel, Launch, dtype_of
from tensorfold.kernels.launch import BuildError, check_types
from tensorfold.proof.host import clang, emulator
from tensorfold.proof.host.check import origins, without_standard_includes
from tensorfold.proof.host.mlx_text import Generated, Input, generate
from tensorfold.proof.host.translate import translate

NUMPY = {
    mx.float32: np.float32, mx.bfloat16: np.uint16, mx.float16: np.float16, mx.bool_: np.bool_, mx.uint8: np.uint8,
    mx.int8: np.int8, mx.uint32: np.uint32, mx.int32: np.int32, mx.uint64: np.uint64, mx.int64: np.int64,
}  # fmt: skip
# tracked code calls the emulator at every access, also where the compiler would have merged or widened them
_TRACKED = (
    "-O1", "-fno-vectorize", "-fno-slp-vectorize", "-Xclang", "-fsanitize=thread",
    "-mllvm", "-tsan-instrument-read-before-write=1", "-mllvm", "-tsan-instrument-func-entry-exit=0",
)  # fmt: skip
_loaded: dict[tuple[Any, ...], tuple[Any, Generated]] = {}


@dataclass(frozen=True)
class HostRun:
    """What one run gave: outputs, bytes written around them, bytes of them never written (known when
    tracked), and the most threadgroup memory a group took."""

    outputs: list[Array]
    spilled: int
    unwritten: int
    shared_bytes: int


def describe(arrays: Sequence[Any]) -> tuple[Input, ...]:
    """What the generated text depends on."""
    return tuple(Input(dtype_of(a), a.ndim == 0, a.size < 8) for a in arrays)


def _key(kernel: Kernel, arrays: Sequence[Any], launch: Launch, track: bool) -> tuple[Any, ...]:
    overrides = tuple(sorted(kernel.overrides.items()))
    return (kernel.path, overrides, describe(arrays), tuple(launch.template.items()), launch.dtypes, track)


def compiled(kernel: Kernel, arrays: Sequence[Any], launch: Launch, track: bool = False) -> tuple[Any, Generated]:
    """The loaded entry of a launch's code. Raises BuildError naming kernel, file and line."""
    key = _key(kernel, arrays, launch, track)
    if key not in _loaded:
        prepare(kernel, [(arrays, launch)], track)
    return _loaded[key]


def prepare(
    kernel: Kernel, launches: Sequence[tuple[Sequence[Any], Launch]], track: bool = False, batch: int = 16
) -> None:
    """Compile the code of many launches at once, several to an object: much faster than one by one."""
    texts: dict[tuple[Any, ...], Generated] = {}
    for arrays, launch in launches:
        key = _key(kernel, arrays, launch, track)
        if key not in _loaded and key not in texts:
            check_types(kernel, arrays, launch)
            texts[key] = generate(kernel, describe(arrays), launch.template, launch.dtypes)
    emulator.runtime()
    groups = [list(texts.items())[i : i + batch] for i in range(0, len(texts), batch)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        libraries = pool.map(lambda group: load(kernel.name, [text for _, text in group], track), groups)
        for group, library in zip(groups, libraries):
            for index, (key, text) in enumerate(group):
                _loaded[key] = (library[f"tf_entry{index}"], text)


def translated(name: str, text: str) -> str:
    """One Metal text as C++ for OpenCL; BuildError where a rule of Metal is broken."""
    source = without_standard_includes(text)
    result = translate(source)
    if result.findings:
        where = origins(source, f"{name}.metal")
        line, message = result.findings[0]
        file, number = where.get(line, (f"{name}.metal", line))
        raise BuildError(name, "host", f"{file}:{number}: {message}")
    return result.text


def load(name: str, texts: Sequence[Generated], track: bool = False) -> ctypes.CDLL:
    """Translate, compile (unless cached) and load Metal texts into one object with entries tf_entry0, tf_entry1, ..."""
    flags = [*(_TRACKED if track else ("-O1",)), "-fPIC"]
    told = [*(text.text + text.entry for text in texts), *flags, *clang.LANGUAGE]
    path = clang.cache_folder() / f"{name}_{clang.fingerprint(told)}.so"
    emulator.runtime()
    if not path.exists():
        whole = ""
        for index, text in enumerate(texts):
            entry = text.entry.replace("tf_entry", f"tf_entry{index}")
            whole += f"namespace tf_launch{index} {{ {translated(name, text.text)}\n{entry}}}\n"
        partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        messages, _ = clang.compile_metal(whole, flags, "-shared", "-lm", "-o", str(partial))
        errors = [m for m in messages if m.level == "error"]
        if errors:
            raise BuildError(name, "host", "\n".join(f"{m.file}:{m.line}: {m.text}" for m in errors[:3]))
        os.replace(partial, path)
    return ctypes.CDLL(str(path))


def execute(
    kernel: Kernel,
    arrays: Sequence[Array],
    launch: Launch,
    schedule: int = 0,
    flush: bool = False,
    track: bool = False,
    workers: int = 1,
    offsets: Sequence[int] | None = None,
    poison: int = 0xFF,
) -> HostRun:
    """Run one launch on copies of the arrays between guard pages; outputs are filled with `poison` bytes before.

    `offsets` are addresses modulo 16 of inputs and outputs. Raises BuildError or EmulatorError.
    """
    entry, text = compiled(kernel, arrays, launch, track)
    made: list[Array] = [np.full(shape, 0, NUMPY[dtype]) for shape, dtype in zip(launch.shapes, launch.dtypes)]
    how = {"schedule": schedule, "flush": flush, "track": track, "workers": workers}
    size = (launch.grid, launch.threadgroup)
    return run_entry(entry, text.shapes, kernel.inputs, arrays, made, *size, how, offsets, poison)


def run_entry(
    entry: Any, shapes: Sequence[tuple[str, str]], names: Sequence[str], arrays: Sequence[Array], made: Sequence[Array],
    grid: Sequence[int], threadgroup: Sequence[int], how: Mapping[str, Any], offsets: Sequence[int] | None, poison: int,
) -> HostRun:  # fmt: skip
    """Run compiled code; `shapes` are the extra arguments that MLX passes for x_shape, x_strides and x_ndim."""
    places = list(offsets) if offsets is not None else [0] * (len(arrays) + len(made))
    arguments: list[int] = []
    with emulator.Buffers(how["track"]) as buffers:
        for index, (name, array) in enumerate(zip(names, arrays)):
            flat = np.ascontiguousarray(array)
            arguments.append(buffers.put(flat, places[index]))
            for _, suffix in (s for s in shapes if s[0] == name):
                arguments.append(buffers.put(shape_argument(flat.shape, suffix)))
        held = []
        for array, place in zip(made, places[len(arrays) :]):
            array.view(np.uint8)[...] = poison if array.dtype != np.bool_ else 0
            held.append(buffers.put(array, place, output=True))
        shared = emulator.launch(entry, arguments + held, grid, threadgroup, **how)
        outputs = [buffers.take(address, like) for address, like in zip(held, made)]
        return HostRun(outputs, sum(map(buffers.spilled, held)), sum(map(buffers.unwritten, held)), shared)


def shape_argument(shape: Sequence[int], suffix: str) -> Array:
    """What MLX passes for an array's x_shape, x_strides or x_ndim, the array being contiguous."""
    if suffix == "shape":
        return np.array(shape, np.int32)
    if suffix == "strides":
        return np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], np.int64)
    return np.array([len(shape)], np.int32)


def run(kernel: Kernel, arrays: Sequence[Array], launch: Launch, **how: Any) -> list[Array]:
    """The outputs of one launch."""
    return execute(kernel, arrays, launch, **{"workers": os.cpu_count() or 1, **how}).outputs
