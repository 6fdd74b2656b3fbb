"""`python -m tensorfold.receipt [--backend B] [--out FILE]`: run it on a Mac, send the JSON. Exit code 1: a fault."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.launch import BACKENDS, BackendError
from tensorfold.proof.contract.bench import DeviceBench, HostBench, make_bench
from tensorfold.proof.contract.report import DIGESTS, stored_digests
from tensorfold.proof.families import all_proofs
from tensorfold.proof.host.clang import ClangMissing
from tensorfold.receipt import arithmetic, kernels, machine, suite

PARTS = ("kernels", "suite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a receipt; 0 when everything holds, 1 when not, 2 when it cannot run here."""
    parser = argparse.ArgumentParser(prog="python -m tensorfold.receipt", description="Say what holds on this machine.")
    parser.add_argument(
        "--backend", choices=BACKENDS, help="default: metal on a Mac, cuda where there is one, else host"
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="kernels whose name matches")
    parser.add_argument(
        "--model", metavar="PATH", help="the checkpoint of the suite (default: examples/tiny-v41 of a checkout)"
    )
    parser.add_argument("--part", choices=PARTS, help="this alone (default: both; with --only, kernels)")
    parser.add_argument("--out", metavar="FILE", help="where the JSON goes (default: tensorfold-receipt-BACKEND.json)")
    parser.add_argument("--write-digests", action="store_true", help="store the host's digests and stop")
    parser.add_argument("--write-logits", action="store_true", help="store the host's digests of --model and stop")
    options = parser.parse_args(arguments)
    backend = options.backend or ("metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "host")
    if (options.write_digests or options.write_logits) and (options.backend not in (None, "host") or options.only):
        parser.error("what is stored comes from the host and of every kernel: no --only and no other backend")
    folder, why_not = _folder(options.model)
    if folder is None and (options.model or options.write_logits):
        parser.error(why_not)
    writes = [name for name in ("digests", "logits") if getattr(options, f"write_{name}")]
    try:
        bench = make_bench("host" if writes else backend)
    except (BackendError, ClangMissing) as error:
        print(error, file=sys.stderr)
        return 2
    if "digests" in writes:
        kernels.write_digests(all_proofs())
        print(f"stored the digests of {len(all_proofs())} kernels in {DIGESTS.name}")
    if "logits" in writes and folder is not None:
        print(f"stored in {suite.STORED.name}: {suite.write_logits(folder)}")
    if writes:
        return 0
    parts = [options.part] if options.part else ["kernels"] if options.only and not options.model else PARTS
    receipt = examine(bench, (options.only or ["*"]) if "kernels" in parts else [])
    if "suite" not in parts:
        folder, why_not = None, "only kernels were asked for"
    receipt["suite"] = {"not_run": why_not} if folder is None else suite.examine(folder, bench.name, _say)
    receipt["ok"] = receipt["ok"] and receipt["suite"].get("ok", True)
    path = options.out or f"tensorfold-receipt-{backend}.json"
    with open(path, "w", encoding="ascii") as file:
        json.dump(receipt, file, indent=1)
    print("\n".join(summary(receipt)))
    print(f"written to {path}")
    return 0 if receipt["ok"] else 1


def _folder(model: str | None) -> tuple[Path | None, str]:
    """The suite's checkpoint, or None and why there is none."""
    folder = suite.EXAMPLE if model is None else Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder, ""
    if model is None:
        return None, "no checkpoint: name a folder with --model, or run in a checkout, which has examples/tiny-v41"
    return None, f"{model} has no config.json: --model takes a checkpoint folder"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def examine(bench: HostBench | DeviceBench, patterns: Sequence[str]) -> dict[str, Any]:
    """Machine, arithmetic and kernels as plain data; a line on standard error for each kernel that is done."""
    stored = stored_digests()
    entries = []
    for name, proof in all_proofs().items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            entries.append(kernels.examine(proof, bench, stored))
            _say(f"{name}: {'ok' if entries[-1]['ok'] else 'FAIL'}")
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
    lines += _suite_lines(receipt["suite"])
    built = sum(entry["compile_error"] is None for entry in entries)
    passed = sum(bool(entry.get("passed")) for entry in entries)
    equal = sum(entry["bits"].startswith("equal") for entry in entries)
    lines.append(
        f"RECEIPT {receipt['backend']}: {len(entries)} kernels: {built} build, {passed} pass the contract, "
        f"{equal} with the host's bits; {'everything holds' if receipt['ok'] else 'NOT everything holds'}"
    )
    return lines


def _suite_lines(found: dict[str, Any]) -> list[str]:
    if "not_run" in found:
        return [f"the suite was not run: {found['not_run']}"]
    findings, rates = found["findings"], found["tokens_per_second"]
    lines = [f"{'pass' if f['ok'] else 'FAIL'}  {f['name']}: {f['detail']}" for f in findings]
    lines.append("tokens/s: " + ", ".join(f"{what} {rate}" for what, rate in rates.items() if rate is not None))
    held = sum(f["ok"] for f in findings)
    return [*lines, f"SUITE {found['checkpoint']}: {held} of {len(findings)} hold, in {found['seconds']} s"]


if __name__ == "__main__":
    sys.exit(main())
