"""`python -m tensorfold.receipt [--backend B] [--out FILE]`: run it on a Mac, send the JSON. Exit code 1: a fault."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from tensorfold.contract.bench import DeviceBench, HostBench, make_bench
from tensorfold.contract.clang import ClangMissing
from tensorfold.kernels import all_kernels
from tensorfold.kernels.launch import BACKENDS, BackendError
from tensorfold.receipt import arithmetic, kernels, machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a receipt; 0 when everything holds, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="python -m tensorfold.receipt", description="Say what holds on this machine.")
    parser.add_argument(
        "--backend", choices=BACKENDS, help="default: metal on a Mac, cuda where there is one, else host"
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="kernels whose name matches")
    parser.add_argument("--out", metavar="FILE", help="where the JSON goes (default: tensorfold-receipt-BACKEND.json)")
    parser.add_argument("--write-digests", action="store_true", help="store the host's digests and stop")
    options = parser.parse_args(arguments)
    backend = options.backend or ("metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "host")
    if options.write_digests and (options.backend not in (None, "host") or options.only):
        parser.error("--write-digests stores every kernel's digest, from the host: no --only and no other backend")
    try:
        bench = make_bench("host" if options.write_digests else backend)
    except (BackendError, ClangMissing) as error:
        print(error, file=sys.stderr)
        return 2
    if options.write_digests:
        kernels.write_digests(all_kernels())
        print(f"stored the digests of {len(all_kernels())} kernels in {kernels.DIGESTS.name}")
        return 0
    receipt = examine(bench, options.only or ["*"])
    path = options.out or f"tensorfold-receipt-{backend}.json"
    with open(path, "w", encoding="ascii") as file:
        json.dump(receipt, file, indent=1)
    print("\n".join(summary(receipt)))
    print(f"written to {path}")
    return 0 if receipt["ok"] else 1


def examine(bench: HostBench | DeviceBench, patterns: Sequence[str]) -> dict[str, Any]:
    """The whole receipt as plain data; a line on standard error for each kernel that is done."""
    stored = kernels.stored_digests()
    entries = []
    for name, kernel in all_kernels().items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            entries.append(kernels.examine(kernel, bench, stored))
            print(f"{name}: {'ok' if entries[-1]['ok'] else 'FAIL'}", file=sys.stderr, flush=True)
    return {
        "backend": bench.name,
        "machine": machine.describe(),
        "arithmetic": arithmetic.probe(bench.name),
        "kernels": entries,
        "ok": all(entry["ok"] for entry in entries),
    }


def summary(receipt: dict[str, Any]) -> list[str]:
    """The receipt in lines a person reads."""
    where, entries = receipt["machine"], receipt["kernels"]
    lines = [f"TensorFold receipt, backend {receipt['backend']}"]
    lines.append(f"{where['chip'] or where['machine']}, {where['system']}, macOS {where['macos'] or '-'}")
    lines.append(", ".join(f"{name} {number}" for name, number in where["versions"].items() if number))
    lines += [f"  {what}: {count}" for what, count in receipt["arithmetic"].items()]
    for entry in entries:
        if entry["compile_error"]:
            lines.append(f"{entry['kernel']:24s} DOES NOT BUILD")
            lines += ["  | " + line for line in entry["compile_error"].splitlines()]
            continue
        planted = len(entry["red"]) + len(entry["missed"])
        verdict = "pass" if entry["passed"] else "FAIL"
        counts = f"{len(entry['red'])} of {planted} controls red, {len(entry['limits'])} limit problems"
        lines.append(
            f"{entry['kernel']:24s} {verdict}, bits {entry['bits']}, {counts}, {entry['launch_us']} us a launch"
        )
        lines += ["  " + finding for finding in entry["findings"][:5]]
    built = sum(entry["compile_error"] is None for entry in entries)
    passed = sum(bool(entry.get("passed")) for entry in entries)
    equal = sum(entry["bits"].startswith("equal") for entry in entries)
    lines.append(
        f"RECEIPT {receipt['backend']}: {len(entries)} kernels: {built} build, {passed} pass the contract, "
        f"{equal} with the host's bits; {'everything holds' if receipt['ok'] else 'NOT everything holds'}"
    )
    return lines


if __name__ == "__main__":
    sys.exit(main())
