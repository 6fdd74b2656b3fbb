"""Small helpers to run Metal text on the host in tests. Knows no registered kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels import Kernel, Launch
from tensorfold.kernels.kernel import dtype_of
from tensorfold.proof.host import program
from tensorfold.proof.host.clang import find_clang
from tensorfold.proof.host.mlx_text import around

needs_clang = pytest.mark.skipif(find_clang() is None, reason="needs clang-19 (apt-get install clang-19)")
_TYPES = {"float": mx.float32, "uint": mx.uint32, "bfloat16_t": mx.bfloat16, "uchar": mx.uint8, "int": mx.int32}


def run_body(
    body: str,
    x: np.ndarray,
    shape: tuple[int, ...] = (512,),
    grid: Sequence[int] = (512, 1, 1),
    threadgroup: Sequence[int] = (256, 1, 1),
    **how: Any,
) -> program.HostRun:
    """Run a raw Metal body with one input x and one float output y, as MLX would wrap it."""
    text = around("raw", ("x",), ("y",), "", body, program.describe([x]), {}, (mx.float32,))
    track = bool(how.setdefault("track", False))
    library = program.load("raw", [text], track)
    made = [np.zeros(shape, np.float32)]
    how = {"schedule": 0, "flush": False, "workers": 1, **how}
    return program.run_entry(library["tf_entry0"], text.shapes, ("x",), [x], made, grid, threadgroup, how, None, 0xFF)


def probe(
    folder: Path, includes: str, body: str, inputs: dict[str, str], outputs: dict[str, str], per_item: int = 1
) -> Kernel:
    """A kernel of one thread per element `i`; inputs and outputs are name: Metal element type, sized like the first.

    Inputs must have 8 elements or more; outputs have `per_item` elements for each element of the first input.
    """
    parameters = [f"const device {t}* {n}" for n, t in inputs.items()] + [
        f"device {t}* {n}" for n, t in outputs.items()
    ]
    path = folder / "probe.metal"
    lines = [f'#include "{name}"' for name in includes.split()]
    lines += [
        "[[kernel]] void probe(" + ", ".join(parameters),
        ", uint3 thread_position_in_grid [[thread_position_in_grid]]) {",
    ]
    lines += ["uint i = thread_position_in_grid.x;", body, "}"]
    path.write_text("\n".join(lines))

    def plan(arrays: Sequence[Any], geometry: Any) -> Launch:
        n = arrays[0].shape[0]
        dtypes = tuple(_TYPES[t] for t in outputs.values())
        return Launch({}, (n, 1, 1), (32, 1, 1), tuple((n * per_item,) for _ in outputs), dtypes)

    return Kernel("probe", path, tuple(inputs), tuple(outputs), ({},), plan)


def run_probe(kernel: Kernel, *arrays: np.ndarray, **how: Any) -> list[np.ndarray]:
    """The outputs of a probe on numpy arrays (a multiple of 32 elements)."""
    assert all(dtype_of(a) is not None for a in arrays)
    return program.execute(kernel, arrays, kernel.launch(arrays), **how).outputs
