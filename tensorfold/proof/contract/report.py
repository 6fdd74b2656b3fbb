"""One kernel's contract: gates, planted mistakes and limits into one result, a line and JSON. Knows no command line."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.kernels.kernel import Array
from tensorfold.kernels.source import SourceError
from tensorfold.proof.contract.bench import DeviceBench, HostBench
from tensorfold.proof.contract.gates import Prepared, case_launches, judge, prepare_cases
from tensorfold.proof.contract.limits import problems
from tensorfold.proof.contract.real import Real, prepare_real
from tensorfold.proof.proof import Mistake, Proof

DIGESTS = Path(__file__).with_name("digests.json")


@dataclass
class Result:
    """What the contract says of one kernel on one backend."""

    kernel: str
    backend: str
    findings: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    red: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    digest: str = ""
    cases: int = 0
    runs: int = 0
    worst: float = 0.0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Gates 1 to 4 without a finding that is not known."""
        return not self.findings

    @property
    def ok(self) -> bool:
        """Passed, every planted mistake seen, within limits."""
        return self.passed and not self.missed and not self.limits

    def line(self) -> str:
        """One line; findings follow on lines of their own."""
        planted = len(self.red) + len(self.missed)
        head = f"{self.kernel:24s} {'pass' if self.ok else 'FAIL'}  {self.cases} cases, {self.runs} runs, "
        head += f"error {self.worst:.2f} of the bound"
        head += f"; {len(self.red)} of {planted} controls red; {len(self.limits)} limit problems; {self.seconds:.1f} s"
        details = [f"  {f}" for f in self.findings[:5]] + [f"  control missed, {m}" for m in self.missed]
        details += [f"  limit: {p}" for p in self.limits] + [f"  known: {k}" for k in self.known]
        if len(self.findings) > 5:
            details.insert(5, f"  and {len(self.findings) - 5} more findings")
        return "\n".join([head, *details])

    def json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**self.__dict__, "passed": self.passed, "ok": self.ok}


def stored_digests() -> dict[str, str]:
    """SHA-256 of every kernel's outputs on its cases, as the host gave them."""
    return dict(json.loads(DIGESTS.read_text("ascii"))) if DIGESTS.exists() else {}


def digest(outputs: Sequence[Sequence[Array]]) -> str:
    """SHA-256 over every output of every case: what a Mac compares its bits with."""
    whole = hashlib.sha256()
    for case in outputs:
        for output in case:
            whole.update(f"{output.dtype.name}{output.shape}".encode())
            whole.update(output.tobytes())
    return whole.hexdigest()


def run_contract(
    proof: Proof, bench: HostBench | DeviceBench, mistakes: bool = True, stored: str | None = None
) -> Result:
    """The whole contract of one kernel; its bits must have the digest `stored`, where one is given."""
    started, before = time.perf_counter(), bench.runs
    result = Result(proof.name, bench.name)
    prepared = prepare_cases(proof)
    cases = [ready.case for ready in prepared]
    result.cases = len(cases)
    try:
        real = prepare_real(proof)
        judgement = judge(proof, bench, prepared, real=real)
    except (SourceError, TypeError, ValueError, IndexError) as error:  # the last two from plans
        result.findings.append(f"gate 1: {error}")
        return result
    for finding in judgement.findings:
        text = str(finding)
        reason = next((why for part, why in proof.known.items() if part in text), None)
        (result.findings if reason is None else result.known).append(text if reason is None else f"{text} ({reason})")
    if proof.row_inputs and not any(case.rows for case in cases):
        result.findings.append("gate 3: it has row inputs, but no case with rows=True")
    result.digest, result.worst = digest(judgement.outputs), judgement.worst
    if stored is not None and stored != result.digest:
        result.findings.append(f"gate 3: the bits have the digest {result.digest}, stored is {stored}")
    if len(proof.mistakes) < 2:
        result.missed.append(f"{len(proof.mistakes)} planted mistakes, at least 2 are owed")
    for mistake in proof.mistakes if mistakes else ():
        if bench.name in mistake.backends:
            verdict = plant(proof, mistake, bench, prepared, real)
            (result.missed if verdict else result.red).append(mistake.name + verdict)
    shared = bench.shared_bytes.get(proof.name, 0) if isinstance(bench, HostBench) else 0
    result.limits = problems(proof.kernel, case_launches(proof, cases), shared)
    result.runs, result.seconds = bench.runs - before, time.perf_counter() - started
    return result


def plant(
    proof: Proof, mistake: Mistake, bench: HostBench | DeviceBench, prepared: Sequence[Prepared] | None = None,
    real: Real | None = None,
) -> str:  # fmt: skip
    """Empty when the planted mistake turns a gate from 2 to 4 red, else what it did instead."""
    if "host" not in mistake.backends:
        return ": names backends without host"
    try:
        findings = judge(proof.planted(mistake), bench, prepared, first_only=True, real=real).findings
    except SourceError as error:
        return f": {error}"
    if not findings:
        return ": every gate stays green"
    return f": does not build: {findings[0].message}" if findings[0].gate == 1 else ""


def summary(backend: str, results: Sequence[Result]) -> str:
    """The last line of a run."""
    passed = sum(r.passed for r in results)
    known = sum(len(r.known) for r in results)
    red, missed = sum(len(r.red) for r in results), sum(len(r.missed) for r in results)
    limits = sum(len(r.limits) for r in results)
    return (
        f"SUMMARY {backend}: {len(results)} kernels: {passed} pass gates 1-4, {len(results) - passed} fail, "
        f"{known} known findings; "
        f"{red + missed} controls: {red} red as planted, {missed} missed; {limits} limit problems"
    )
