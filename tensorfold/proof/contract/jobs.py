"""Contracts of several kernels, one after another or in processes side by side; knows no command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tensorfold.proof.contract.bench import make_bench
from tensorfold.proof.contract.report import Result, run_contract, stored_digests
from tensorfold.proof.families import get
from tensorfold.proof.proof import Proof


def run_all(proofs: Sequence[Proof], backend: str, jobs: int) -> Iterator[Result]:
    """Results in order; with jobs > 1 each process has a bench of its own and finds the kernels by name."""
    if jobs < 2:
        bench = make_bench(backend)
        yield from (run_contract(proof, bench, stored=stored_digests().get(proof.name)) for proof in proofs)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_one, [proof.name for proof in proofs], [backend] * len(proofs))


def _one(name: str, backend: str) -> Result:
    return run_contract(get(name), make_bench(backend), stored=stored_digests().get(name))
