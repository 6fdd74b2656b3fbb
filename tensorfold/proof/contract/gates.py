"""The four gates. Each takes a kernel, a bench and a case and yields what is wrong. Knows no report.

1 source: it compiles, with Metal's address spaces on the host.   2 value: within the stated bound of float64.
3 order: the stated bits, in every geometry, row count, place, alignment and schedule, flushing subnormals or not.
4 containment: every element written once its own, nothing outside, no race, the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorfold.kernels.inputs import Draw
from tensorfold.kernels.kernel import Array, Case, Kernel, Launch
from tensorfold.kernels.launch import BuildError
from tensorfold.proof.contract.bench import DeviceBench, Failure, HostBench, same
from tensorfold.proof.contract.value import outside, values
from tensorfold.proof.host.check import check
from tensorfold.proof.host.mlx_text import generate
from tensorfold.proof.host.program import describe

Bench = HostBench | DeviceBench


@dataclass(frozen=True)
class Finding:
    """One thing wrong."""

    gate: int
    case: str
    message: str

    def __str__(self) -> str:
        return f"gate {self.gate}, {self.case}: {self.message}"


@dataclass(frozen=True)
class Prepared:
    """A case with what its outputs must be, computed once for a kernel and all its planted mistakes."""

    case: Case
    stated: list[Array]
    truths: Sequence[Array] | None


def prepare_cases(kernel: Kernel) -> list[Prepared]:
    """The kernel's cases with their stated bits and, where bounded, their float64 truth."""
    found = []
    for case in kernel.cases():
        stated = [np.ascontiguousarray(s) for s in kernel.stated(*case.arrays, **case.options)]
        truths = kernel.reference(*case.arrays, **case.options) if case.bounded else None
        found.append(Prepared(case, stated, truths))
    return found


@dataclass
class Judgement:
    """What the gates found on one kernel, and the outputs of every case for digests."""

    findings: list[Finding] = field(default_factory=list)
    outputs: list[list[Array]] = field(default_factory=list)
    worst: float = 0.0


def judge(
    kernel: Kernel, bench: Bench, prepared: Sequence[Prepared] | None = None, first_only: bool = False
) -> Judgement:
    """All gates on all cases; with `first_only` stops at the first finding (for planted mistakes)."""
    judgement = Judgement()
    for finding in _judge(
        kernel, bench, prepare_cases(kernel) if prepared is None else prepared, judgement, first_only
    ):
        judgement.findings.append(finding)
        if first_only:
            break
    return judgement


def _judge(
    kernel: Kernel, bench: Bench, prepared: Sequence[Prepared], judgement: Judgement, quick: bool
) -> Iterator[Finding]:
    cases = [p.case for p in prepared]
    try:
        first = kernel.launch(cases[0].arrays, None, **cases[0].options)
        if not quick:
            yield from source(kernel, bench, cases[0].arrays, first)
            bench.prepare(kernel, [*case_launches(kernel, cases), *row_launches(kernel, cases)])
            bench.prepare(kernel, case_launches(kernel, cases), track=True)
    except (*Failure, ValueError) as error:
        yield Finding(1, cases[0].name, str(error))
        return
    ran = []
    for ready in prepared:
        case = ready.case
        try:
            base = bench.run(kernel, case.arrays, kernel.launch(case.arrays, None, **case.options))
        except Failure as error:
            yield Finding(1 if isinstance(error, BuildError) else 4, case.name, str(error))
            continue
        ran.append((case, base))
        judgement.outputs.append(base)
        yield from first_run(kernel, ready, base, judgement)
    for case, base in ran:
        yield from containment(kernel, bench, case, base)
    for case, base in ran:
        yield from order(kernel, bench, case, base)


def case_launches(kernel: Kernel, cases: Sequence[Case]) -> list[tuple[Sequence[Array], Launch]]:
    """Every case in every geometry."""
    return [(c.arrays, kernel.launch(c.arrays, g, **c.options)) for c in cases for g in kernel.geometries]


def row_launches(kernel: Kernel, cases: Sequence[Case]) -> list[tuple[Sequence[Array], Launch]]:
    """Every launch of some of a case's rows."""
    return [(arrays, kernel.launch(arrays, g, **c.options)) for c in cases for _, arrays, g in _row_runs(kernel, c)]


def source(kernel: Kernel, bench: Bench, arrays: Sequence[Array], launch: Launch) -> Iterator[Finding]:
    """Gate 1 on the host: the checker on the text MLX would hand to Metal. A GPU's compiler judges at the first run."""
    if bench.name != "host":
        return
    text = generate(kernel, describe(arrays), launch.template, launch.dtypes)
    for finding in check(text.text, kernel.path.name):
        yield Finding(1, "source", f"{finding.file}:{finding.line}: {finding.message}")


def first_run(kernel: Kernel, ready: Prepared, base: Sequence[Array], judgement: Judgement) -> Iterator[Finding]:
    """Gates 2 and 3 on a case's first run: the stated bits, and within the bound of the truth."""
    case = ready.case
    if not same(base, ready.stated):
        yield Finding(3, case.name, "bits differ from the stated order: " + difference(base, ready.stated))
    if ready.truths is not None:
        complaints, worst = outside(kernel.bound, base, ready.truths, case.arrays, case.options)
        judgement.worst = max(judgement.worst, worst)
        yield from (Finding(2, case.name, message) for message in complaints)


def order(kernel: Kernel, bench: Bench, case: Case, base: Sequence[Array]) -> Iterator[Finding]:
    """Gate 3 beyond the first run: geometries, schedules, rows, alignment."""

    def differs(
        what: str, arrays: Sequence[Array], geometry: Any, expected: Sequence[Array], **how: Any
    ) -> Iterator[Finding]:
        try:
            got = bench.run(kernel, arrays, kernel.launch(arrays, geometry, **case.options), **how)
        except Failure as error:
            yield Finding(3, case.name, f"{what}: {error}")
            return
        if not same(got, expected):
            yield Finding(3, case.name, f"{what}: {difference(got, expected)}")

    for geometry in kernel.geometries[1:]:
        yield from differs(f"geometry {dict(geometry)}", case.arrays, geometry, base)
        if bench.schedules:
            yield from differs(
                f"geometry {dict(geometry)}, shuffled", case.arrays, geometry, base, schedule=5, flush=True
            )
    for how in bench.schedules:
        yield from differs(f"{how}", case.arrays, None, base, **how)
    if not case.rows:
        return
    for rows, arrays, geometry in _row_runs(kernel, case):
        yield from differs(f"rows {rows} alone", arrays, geometry, [y[rows] for y in base])
    smallest = min(max(a.itemsize, kernel.alignment.get(n, 1)) for n, a in zip(kernel.inputs, case.arrays))
    for shift in range(1, 16 // smallest):
        yield from differs(f"addresses shifted by {shift}", case.arrays, None, base, shift=shift)


def _row_runs(kernel: Kernel, case: Case) -> Iterator[tuple[list[int], list[Array], Any]]:
    """(row indices, arrays, geometry) of every row count: at the start, in the middle, at the end, shuffled."""
    if not case.rows or not kernel.row_inputs:
        return
    total = len(case.arrays[kernel.inputs.index(kernel.row_inputs[0])])
    counts = [n for n in kernel.row_counts if n <= total]
    for count in counts:
        shuffled = np.argsort(Draw(count).words(total), kind="stable")[:count].tolist()
        windows = {tuple(range(s, s + count)) for s in (0, (total - count) // 2, total - count)} | {tuple(shuffled)}
        for rows in sorted(windows):
            yield list(rows), _rows(kernel, case, rows), None
        for geometry in kernel.geometries[1:] if count in (counts[0], counts[-1]) else ():
            yield shuffled, _rows(kernel, case, shuffled), geometry


def _rows(kernel: Kernel, case: Case, rows: Sequence[int]) -> list[Array]:
    return [
        np.ascontiguousarray(a[list(rows)]) if n in kernel.row_inputs else a for n, a in zip(kernel.inputs, case.arrays)
    ]


def containment(kernel: Kernel, bench: Bench, case: Case, base: Sequence[Array]) -> Iterator[Finding]:
    """Gate 4, in every geometry."""
    for geometry in kernel.geometries:
        try:
            complaints = bench.contained(
                kernel, case.arrays, kernel.launch(case.arrays, geometry, **case.options), base
            )
        except Failure as error:
            complaints = [str(error)]
        yield from (Finding(4, case.name, message) for message in complaints)


def difference(got: Sequence[Array], expected: Sequence[Array]) -> str:
    """Where the first difference stands, and how many there are."""
    if len(got) != len(expected):
        return f"{len(got)} outputs, expected {len(expected)}"
    for index, (a, b) in enumerate(zip(got, expected)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index} is {a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        if a.tobytes() != b.tobytes():
            kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.itemsize]
            wrong = a.view(kind) != b.view(kind)
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = f"{int(wrong.sum())} of {wrong.size} elements of output {index}"
            return f"{count}, first at {at}: {float(values(a)[at])}, expected {float(values(b)[at])}"
    return "no difference"
