"""Runs a launch of arrays with holes on the host: of its threadgroups those whose rows are there. Knows no gate."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array, Kernel
from tensorfold.proof.far import Holed
from tensorfold.proof.host import emulator
from tensorfold.proof.host.program import NUMPY, compiled, shape_argument
from tensorfold.proof.proof import Far

_GRID = 2**32  # threads along an axis are counted in 32 bits


def run_far(kernel: Kernel, far: Far) -> list[Array]:
    """The outputs' rows that are there, side by side. Raises BuildError or EmulatorError."""
    near = kernel.launch(far.case.arrays, far.geometry, **far.case.options)
    launch = kernel.launch(far.arrays, far.geometry, **far.case.options)
    if max(launch.grid) >= _GRID:
        raise ValueError(f"{kernel.name}: grid {launch.grid} is beyond what 32 bits count")
    entry, text = compiled(kernel, far.arrays, launch)
    front, whole = far.cut or (1, 1)
    made: list[Array] = [np.zeros(shape, NUMPY[dtype]) for shape, dtype in zip(near.shapes, near.dtypes)]
    parts = [(a.nbytes // whole * front, (int(np.prod(s)) - a.size) * a.itemsize) for a, s in zip(made, launch.shapes)]
    arguments: list[int] = []
    with emulator.Buffers(False) as buffers:
        for name, array in zip(kernel.inputs, far.arrays):
            if isinstance(array, Holed):
                flat = np.ascontiguousarray(array.array)
                row = array.row_bytes
                arguments.append(buffers.put_apart(flat, array.front * row, array.hole * row))
            else:
                arguments.append(buffers.put(np.ascontiguousarray(array)))
            for _, suffix in (s for s in text.shapes if s[0] == name):
                arguments.append(buffers.put(shape_argument(array.shape, suffix)))
        held = [buffers.put_apart(a, *part, output=True) for a, part in zip(made, parts)]
        size = launch.grid, launch.threadgroup
        kept = _kept(near.grid, launch.grid, size[1], far.cut)
        emulator.launch(entry, arguments + held, *size, workers=1, schedule=0, flush=False, track=False, kept=kept)
        return [buffers.take_apart(address, a, *part) for address, a, part in zip(held, made, parts)]


def _kept(
    near: tuple[int, ...], grid: tuple[int, ...], threads: tuple[int, ...], cut: tuple[int, int] | None
) -> tuple[int, int, int] | None:
    """(axis, first, last): the threadgroups whose rows are there, along the axis that grew with the rows."""
    if cut is None:
        return None
    (axis,) = (i for i in range(3) if near[i] != grid[i])
    groups = near[axis] // threads[axis]
    if groups * cut[0] % cut[1]:
        raise ValueError(f"{groups} threadgroups along an axis do not part as {cut[0]} of {cut[1]} rows do")
    return axis, groups * cut[0] // cut[1], groups - groups * cut[0] // cut[1]
