"""Every kernel on one backend: built, judged by the contract, compared with the host's digest, timed."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Kernel, as_mlx
from tensorfold.kernels.launch import launcher
from tensorfold.proof.contract.bench import DeviceBench, HostBench
from tensorfold.proof.contract.report import DIGESTS, digest, run_contract
from tensorfold.proof.proof import Case, Proof

_LAUNCHES, _REPEATS = 20, 5


def write_digests(proofs: Mapping[str, Proof]) -> None:
    """Run every case of every kernel once on the host and store the digests of its bits."""
    bench, found = HostBench(), {}
    for name, proof in proofs.items():
        cases, kernel = proof.cases(), proof.kernel
        bench.prepare(kernel, [(c.arrays, proof.launch(c)) for c in cases])
        found[name] = digest([bench.run(kernel, c.arrays, proof.launch(c)) for c in cases])
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n", "ascii")


def examine(proof: Proof, bench: HostBench | DeviceBench, stored: Mapping[str, str]) -> dict[str, Any]:
    """The contract's result of one kernel, with `compile_error` verbatim, `bits` against the host, and `launch_us`."""
    cases, kernel = proof.cases(), proof.kernel
    error = build_error(kernel, bench.name, cases[0])
    if error is not None:
        return {"kernel": kernel.name, "ok": False, "compile_error": error, "bits": "not run", "launch_us": None}
    result = run_contract(proof, bench)
    wanted = stored.get(kernel.name)
    bits = "no stored digest" if wanted is None else "equal to the host's" if wanted == result.digest else "DIFFERENT"
    case = next((c for c in cases if c.rows), cases[0])
    plain = result.json()
    plain["ok"] = result.ok and bits != "DIFFERENT"
    return {
        **plain,
        "compile_error": None,
        "bits": bits,
        "launch_us": round(launch_time(kernel, bench.name, case) * 1e6, 1),
    }


def build_error(kernel: Kernel, backend: str, case: Case) -> str | None:
    """What the backend's compiler says against a kernel, whole; None when it builds and runs."""
    try:
        arrays = [as_mlx(a) for a in case.arrays]
        mx.eval(kernel(*arrays, backend=backend, **case.options))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def launch_time(kernel: Kernel, backend: str, case: Case) -> float:
    """Median seconds a launch, of launches evaluated together."""
    arrays = [as_mlx(a) for a in case.arrays]
    run, plan = (
        launcher(backend),
        kernel.launch(arrays, kernel.geometry(backend, arrays, **case.options), **case.options),
    )
    mx.eval(arrays, run(kernel, arrays, plan))
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        mx.eval([run(kernel, arrays, plan) for _ in range(_LAUNCHES)])
        times.append((time.perf_counter() - started) / _LAUNCHES)
    return statistics.median(times)
