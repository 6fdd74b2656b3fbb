"""`python -m tensorfold.contract`: a line per kernel, the SUMMARY line last, exit code 1 on anything wrong."""

from __future__ import annotations

import argparse
import fnmatch
import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version

from tensorfold.kernels.launch import BACKENDS, BackendError
from tensorfold.proof.contract.bench import make_bench
from tensorfold.proof.contract.jobs import run_all
from tensorfold.proof.contract.report import summary
from tensorfold.proof.families import all_proofs
from tensorfold.proof.host.clang import ClangMissing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the contract; 0 when everything holds, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="python -m tensorfold.contract", description="Run the kernel contract.")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="kernels whose name matches (may be repeated)"
    )
    parser.add_argument("--backend", choices=BACKENDS, default="host")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many kernels at a time, in processes")
    parser.add_argument("--list", action="store_true", help="name the kernels and stop")
    options = parser.parse_args(arguments)
    patterns = options.only or ["*"]
    proofs = [p for name, p in all_proofs().items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if options.list:
        for proof in proofs:
            counts = f"{len(proof.cases())} cases, {len(proof.kernel.geometries)} geometries"
            print(f"{proof.name:24s} {counts}, {len(proof.mistakes)} controls")
        return 0
    if not proofs:
        print(f"no kernel matches {' '.join(patterns)}; there are: {', '.join(all_proofs())}", file=sys.stderr)
        return 2
    try:
        make_bench(options.backend)
    except (BackendError, ClangMissing) as error:
        print(error, file=sys.stderr)
        return 2
    results = []
    for result in run_all(proofs, options.backend, options.jobs):
        results.append(result)
        print(result.line(), flush=True)
    if options.json:
        system = f"{platform.system()} {platform.machine()}"
        machine = {"system": system, "python": platform.python_version(), "mlx": version("mlx")}
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(
                {"backend": options.backend, "machine": machine, "kernels": [r.json() for r in results]}, file, indent=1
            )
    print(summary(options.backend, results))
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
