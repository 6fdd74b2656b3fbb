"""The host backend: kernels compiled for the CPU by clang and emulated. Exact and slow, and only when asked for.

Importing this package offers the backend "host" to `tensorfold.kernels.launch`. Knows no kernel by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Array, Kernel, Launch, as_mlx, as_numpy
from tensorfold.kernels.launch import check_types, offer
from tensorfold.proof.host import clang, program


class HostLauncher:
    """Through clang and the emulator; raises ClangMissing where there is no clang 19."""

    name = "host"

    def __init__(self) -> None:
        clang.require_clang()

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, init_value: float | None = None
    ) -> list[mx.array]:
        check_types(kernel, arrays, launch)
        return [as_mlx(y) for y in run_host(kernel, [as_numpy(a) for a in arrays], launch)]


def run_host(kernel: Kernel, arrays: Sequence[Array], launch: Launch, **how: Any) -> list[Array]:
    """One launch on the host, numpy in and out; `how` goes to `program.run`."""
    return program.run(kernel, arrays, launch, **how)


offer("host", HostLauncher)
