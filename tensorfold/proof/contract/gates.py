"""The four gates. Each takes a kernel's proof, a bench and a case and yields what is wrong. Knows no report.

1 source: it compiles, with Metal's address spaces on the host.   2 value: within the stated bound of float64.
3 order: the stated bits, in every geometry, row count, place, alignment and schedule, flushing subnormals or not.
4 containment: every element written once its own, nothing outside, no race, the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array, Geometry, Launch
from tensorfold.kernels.launch import BuildError
from tensorfold.proof.contract.bench import DeviceBench, Failure, HostBench, same
from tensorfold.proof.contract.real import Real, prepare_real, prompts, real_launches, row_cases
from tensorfold.proof.contract.value import outside, values
from tensorfold.proof.host.check import check
from tensorfold.proof.host.mlx_text import generate
from tensorfold.proof.host.program import describe
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case, Proof

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


def prepare_cases(proof: Proof) -> list[Prepared]:
    """The kernel's cases with their stated bits and, where bounded, their float64 truth."""
    found = []
    for case in proof.cases():
        stated = [np.ascontiguousarray(s) for s in proof.stated(*case.arrays, **case.options)]
        truths = proof.reference(*case.arrays, **case.options) if case.bounded else None
        found.append(Prepared(case, stated, truths))
    return found


@dataclass
class Judgement:
    """What the gates found on one kernel, and the outputs of every case for digests."""

    findings: list[Finding] = field(default_factory=list)
    outputs: list[list[Array]] = field(default_factory=list)
    worst: float = 0.0


def judge(
    proof: Proof, bench: Bench, prepared: Sequence[Prepared] | None = None, first_only: bool = False,
    real: Real | None = None,
) -> Judgement:  # fmt: skip
    """All gates on all cases; with `first_only` stops at the first finding (for planted mistakes)."""
    judgement = Judgement()
    prepared, real = prepare_cases(proof) if prepared is None else prepared, real or prepare_real(proof)
    for finding in _judge(proof, bench, prepared, real, judgement, first_only):
        judgement.findings.append(finding)
        if first_only:
            break
    return judgement


def _judge(
    proof: Proof, bench: Bench, prepared: Sequence[Prepared], real: Real, judgement: Judgement, quick: bool
) -> Iterator[Finding]:
    cases = [p.case for p in prepared]
    try:
        first = proof.launch(cases[0])
        if not quick:
            yield from source(proof, bench, cases[0].arrays, first)
            bench.prepare(proof.kernel, [*case_launches(proof, cases), *row_launches(proof, cases)])
            bench.prepare(proof.kernel, real_launches(proof, cases, real))
            rows = [next(prompts(proof, case)) for case in row_cases(proof, cases)]
            first_of_prompts = [(made.arrays, proof.launch(made, geometry)) for _, made, geometry in rows]
            bench.prepare(proof.kernel, [*case_launches(proof, cases), *first_of_prompts], track=True)
    except (*Failure, ValueError) as error:
        yield Finding(1, cases[0].name, str(error))
        return
    ran = []
    for ready in prepared:
        case = ready.case
        try:
            base = bench.run(proof.kernel, case.arrays, proof.launch(case))
        except Failure as error:
            yield Finding(1 if isinstance(error, BuildError) else 4, case.name, str(error))
            continue
        ran.append((case, base))
        judgement.outputs.append(base)
        yield from first_run(proof, ready, base, judgement)
    yield from far(proof, bench, real)
    for case, base in ran:
        yield from containment(proof, bench, case, base)
    for case, base in ran:
        yield from order(proof, bench, case, base)
    for case, base in ran:
        yield from prompt(proof, bench, case, base)
    yield from once(proof, bench, real)


def case_launches(proof: Proof, cases: Sequence[Case]) -> list[tuple[Sequence[Array], Launch]]:
    """Every case in every geometry."""
    return [(c.arrays, proof.launch(c, g)) for c in cases for g in proof.kernel.geometries]


def row_launches(proof: Proof, cases: Sequence[Case]) -> list[tuple[Sequence[Array], Launch]]:
    """Every launch of some of a case's rows."""
    runs = [(c, arrays, geometry) for c in cases for _, arrays, geometry in _row_runs(proof, c)]
    return [(arrays, proof.kernel.launch(arrays, geometry, **c.options)) for c, arrays, geometry in runs]


def source(proof: Proof, bench: Bench, arrays: Sequence[Array], launch: Launch) -> Iterator[Finding]:
    """Gate 1 on the host: the checker on the text MLX would hand to Metal. A GPU's compiler judges at the first run."""
    if bench.name != "host":
        return
    text = generate(proof.kernel, describe(arrays), launch.template, launch.dtypes)
    for finding in check(text.text, proof.kernel.path.name):
        yield Finding(1, "source", f"{finding.file}:{finding.line}: {finding.message}")


def first_run(proof: Proof, ready: Prepared, base: Sequence[Array], judgement: Judgement) -> Iterator[Finding]:
    """Gates 2 and 3 on a case's first run: the stated bits, and within the bound of the truth."""
    case = ready.case
    if not same(base, ready.stated):
        yield Finding(3, case.name, "bits differ from the stated order: " + difference(base, ready.stated))
    if ready.truths is not None:
        complaints, worst = outside(proof.bound, base, ready.truths, case.arrays, case.options)
        judgement.worst = max(judgement.worst, worst)
        yield from (Finding(2, case.name, message) for message in complaints)


def order(proof: Proof, bench: Bench, case: Case, base: Sequence[Array]) -> Iterator[Finding]:
    """Gate 3 beyond the first run: geometries, schedules, rows, alignment."""

    def differs(
        what: str, arrays: Sequence[Array], geometry: Any, expected: Sequence[Array], **how: Any
    ) -> Iterator[Finding]:
        try:
            got = bench.run(proof.kernel, arrays, proof.kernel.launch(arrays, geometry, **case.options), **how)
        except Failure as error:
            yield Finding(3, case.name, f"{what}: {error}")
            return
        if not same(got, expected):
            yield Finding(3, case.name, f"{what}: {difference(got, expected)}")

    for geometry in proof.kernel.geometries[1:]:
        yield from differs(f"geometry {dict(geometry)}", case.arrays, geometry, base)
        if bench.schedules:
            yield from differs(
                f"geometry {dict(geometry)}, shuffled", case.arrays, geometry, base, schedule=5, flush=True
            )
    for how in bench.schedules:
        yield from differs(f"{how}", case.arrays, None, base, **how)
    if not case.rows:
        return
    for rows, arrays, geometry in _row_runs(proof, case):
        yield from differs(f"rows {rows} alone", arrays, geometry, [y[rows] for y in base])
    smallest = min(max(a.itemsize, proof.kernel.alignment.get(n, 1)) for n, a in zip(proof.kernel.inputs, case.arrays))
    for shift in range(1, 16 // smallest):
        yield from differs(f"addresses shifted by {shift}", case.arrays, None, base, shift=shift)


def far(proof: Proof, bench: Bench, real: Real) -> Iterator[Finding]:
    """Gates 3 and 4 with rows and places beyond 4 GiB, of which a host reserves addresses alone."""
    if not isinstance(bench, HostBench):
        return
    for each, stated in real.far:
        try:
            got = bench.far(proof.kernel, each)
        except Failure as error:
            yield Finding(4, each.case.name, f"far apart: {error}")
            continue
        if not same(got, stated):
            yield Finding(3, each.case.name, f"far apart: {difference(got, stated)}")


def prompt(proof: Proof, bench: Bench, case: Case, base: Sequence[Array]) -> Iterator[Finding]:
    """Gate 3 with as many rows as a prompt's launches have, and gate 4 once."""
    for turn, (rows, made, geometry) in enumerate(prompts(proof, case) if row_cases(proof, [case]) else ()):
        expected = [y[rows] for y in base]
        yield from _run_once(proof, bench, made, geometry, expected, f"{len(rows)} rows")
        if turn == 0:
            yield from _contained(proof, bench, made, geometry, expected, f"{len(rows)} rows: ")


def once(proof: Proof, bench: Bench, real: Real) -> Iterator[Finding]:
    """Gate 3 on inputs of real sizes, in every geometry."""
    for case, stated in real.once:
        for geometry in proof.kernel.geometries:
            yield from _run_once(proof, bench, case, geometry, stated, f"geometry {dict(geometry)}")


def _run_once(
    proof: Proof, bench: Bench, case: Case, geometry: Geometry, expected: Sequence[Array], what: str
) -> Iterator[Finding]:
    try:
        got = bench.run(proof.kernel, case.arrays, proof.launch(case, geometry))
    except Failure as error:
        yield Finding(3, case.name, f"{what}: {error}")
        return
    if not same(got, expected):
        yield Finding(3, case.name, f"{what}: {difference(got, expected)}")


def _row_runs(proof: Proof, case: Case) -> Iterator[tuple[list[int], list[Array], Any]]:
    """(row indices, arrays, geometry) of every row count: at the start, in the middle, at the end, shuffled."""
    if not case.rows or not proof.row_inputs:
        return
    total = len(case.arrays[proof.kernel.inputs.index(proof.row_inputs[0])])
    counts = [n for n in proof.row_counts if n <= total]
    for count in counts:
        shuffled = np.argsort(Draw(count).words(total), kind="stable")[:count].tolist()
        spans = {tuple(range(s, s + count)) for s in (0, (total - count) // 2, total - count)} | {tuple(shuffled)}
        for rows in sorted(spans):
            yield list(rows), _rows(proof, case, rows), None
        for geometry in proof.kernel.geometries[1:] if count in (counts[0], counts[-1]) else ():
            yield shuffled, _rows(proof, case, shuffled), geometry


def _rows(proof: Proof, case: Case, rows: Sequence[int]) -> list[Array]:
    named = zip(proof.kernel.inputs, case.arrays)
    return [np.ascontiguousarray(a[list(rows)]) if n in proof.row_inputs else a for n, a in named]


def containment(proof: Proof, bench: Bench, case: Case, base: Sequence[Array]) -> Iterator[Finding]:
    """Gate 4, in every geometry."""
    for geometry in proof.kernel.geometries:
        yield from _contained(proof, bench, case, geometry, base)


def _contained(
    proof: Proof, bench: Bench, case: Case, geometry: Geometry, expected: Sequence[Array], what: str = ""
) -> Iterator[Finding]:
    try:
        complaints = bench.contained(proof.kernel, case.arrays, proof.launch(case, geometry), expected)
    except Failure as error:
        complaints = [str(error)]
    yield from (Finding(4, case.name, what + message) for message in complaints)


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
