"""Contracts of several kernels, one after another or in processes side by side; knows no command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tensorfold.contract.bench import make_bench
from tensorfold.contract.report import Result, run_contract
from tensorfold.kernels import all_kernels


def run_all(names: Sequence[str], backend: str, jobs: int) -> Iterator[Result]:
    """Results in the order of the names; with jobs > 1 each process has a bench of its own."""
    if jobs < 2:
        bench = make_bench(backend)
        yield from (run_contract(all_kernels()[name], bench) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_one, names, [backend] * len(names))


def _one(name: str, backend: str) -> Result:
    return run_contract(all_kernels()[name], make_bench(backend))
