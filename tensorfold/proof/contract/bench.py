"""Where a kernel under judgement runs: the host's emulator, or a GPU through MLX. Knows no gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Array, Kernel, Launch, as_mlx, as_numpy
from tensorfold.kernels.launch import BuildError, first_errors, launcher
from tensorfold.proof.host import program
from tensorfold.proof.host.holes import run_far
from tensorfold.proof.proof import Far

Failure = (BuildError, RuntimeError)


class Bench(Protocol):
    """Runs launches and says what it can find out about them."""

    name: str
    schedules: tuple[dict[str, Any], ...]
    runs: int

    def prepare(self, kernel: Kernel, launches: Sequence[tuple[Sequence[Array], Launch]], track: bool = False) -> None:
        """Build what is about to run; `track` for `contained`."""

    def run(self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, shift: int = 0, **how: Any) -> list[Array]:
        """The outputs; `shift` moves every array's address by that many of its alignment units."""

    def contained(
        self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, expected: Sequence[Array]
    ) -> list[str]:
        """Gate 4: what was left unwritten, written outside, raced, or came out differently the second time."""


def _unit(kernel: Kernel, name: str, array: Array) -> int:
    return max(array.itemsize, kernel.alignment.get(name, 1))


class HostBench:
    """clang and the emulator."""

    name = "host"
    schedules = ({"schedule": 1}, {"schedule": 2, "flush": True}, {"schedule": 0, "flush": True})

    def __init__(self) -> None:
        self.runs = 0
        self.shared_bytes: dict[str, int] = {}

    def prepare(self, kernel: Kernel, launches: Sequence[tuple[Sequence[Array], Launch]], track: bool = False) -> None:
        program.prepare(kernel, launches, track)

    def run(self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, shift: int = 0, **how: Any) -> list[Array]:
        self.runs += 1
        units = [_unit(kernel, n, a) for n, a in zip(kernel.inputs, arrays)]
        offsets = [shift * unit % 16 for unit in units] + [0] * len(launch.shapes)
        done = program.execute(kernel, arrays, launch, offsets=offsets, **how)
        self.shared_bytes[kernel.name] = max(self.shared_bytes.get(kernel.name, 0), done.shared_bytes)
        return done.outputs

    def far(self, kernel: Kernel, far: Far) -> list[Array]:
        """The outputs of a launch of arrays with holes."""
        self.runs += 1
        return run_far(kernel, far)

    def contained(
        self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, expected: Sequence[Array]
    ) -> list[str]:
        found = []
        for poison in (0xFF, 0x5A):
            self.runs += 1
            how: dict[str, Any] = {"poison": poison, "schedule": 3 if poison == 0x5A else 0}
            done = program.execute(kernel, arrays, launch, track=True, **how)
            if done.unwritten:
                found.append(f"{done.unwritten} bytes of outputs were never written")
            if done.spilled:
                found.append(f"{done.spilled} bytes around the outputs were written")
            if not done.unwritten and not same(done.outputs, expected):
                found.append("a second run gives other bits")
        return found


class DeviceBench:
    """A GPU: no schedules to permute and no bounds to see, but poisoned outputs, surroundings and repeats."""

    schedules: tuple[dict[str, Any], ...] = ()

    def __init__(self, name: str):
        self.name = name
        self.runs = 0
        self._launch = launcher(name)

    def prepare(self, kernel: Kernel, launches: Sequence[tuple[Sequence[Array], Launch]], track: bool = False) -> None:
        return None

    def run(self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, shift: int = 0, **how: Any) -> list[Array]:
        self.runs += 1
        inputs = [_shifted(a, shift * _unit(kernel, n, a) // a.itemsize) for n, a in zip(kernel.inputs, arrays)]
        try:
            made = self._launch(kernel, inputs, launch, **how)
            mx.eval(made)
        except RuntimeError as error:
            raise BuildError(kernel.name, self.name, first_errors(str(error))) from error
        return [as_numpy(y) for y in made]

    def contained(
        self, kernel: Kernel, arrays: Sequence[Array], launch: Launch, expected: Sequence[Array]
    ) -> list[str]:
        found = []
        inputs = [as_mlx(a) for a in arrays]
        for poison in (1.0, 0.0):
            made = self._launch(kernel, inputs, launch, init_value=poison)
            mx.eval(made)
            self.runs += 1
            if not same([as_numpy(y) for y in made], expected):
                found.append(
                    f"other bits where outputs hold {poison} before: an element is not written, or runs differ"
                )
        if not same([as_numpy(x) for x in inputs], arrays):
            found.append("an input was changed")
        return found


def _shifted(array: Array, items: int) -> mx.array:
    """The array as a view that starts `items` elements into a larger one."""
    if not items:
        return as_mlx(array)
    larger = np.zeros(array.size + items, array.dtype)
    larger[items:] = array.reshape(-1)
    return as_mlx(larger)[items:].reshape(array.shape)


def same(a: Sequence[Array], b: Sequence[Array]) -> bool:
    """Equal bits, shapes and types."""
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b)
    )


def make_bench(backend: str) -> HostBench | DeviceBench:
    """The bench of a backend; raises BackendError or ClangMissing where it cannot be used here."""
    launcher(backend)
    return HostBench() if backend == "host" else DeviceBench(backend)
