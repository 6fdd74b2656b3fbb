"""The device suite: what must hold of a whole checkpoint on one backend, without pytest. Knows no kernel by name."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.backend.choice import make_backend
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.model import Model
from tensorfold.receipt.finding import Finding, guarded
from tensorfold.receipt.footprint import constant_memory, used_where_they_lie
from tensorfold.receipt.laws import Laws
from tensorfold.receipt.rows import RowLaw
from tensorfold.receipt.runner import Runner
from tensorfold.receipt.speed import speed

STORED = Path(__file__).with_name("logits.json")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny-v41"
Say = Callable[[str], object]


@dataclass(frozen=True)
class Size:
    """How much is tried: prompts x tokens of the laws, `drafted` of them also alone, `batched` whether also undrafted
    side by side; `decoded` ids of a prompt one by one, 0 for none; `pool_bytes` of caches and `rounds` of the memory's
    count; `prompt` and `reply` ids for speed."""

    prompts: int
    tokens: int
    drafted: int
    batched: bool
    decoded: int
    pool_bytes: int
    rounds: int
    prompt: int
    reply: int


DEVICE = Size(8, 64, 8, True, 200, 2**28, 12, 256, 64)
HOST = Size(4, 32, 1, False, 0, 2**24, 3, 64, 8)


def size_of(backend: str) -> Size:
    """The emulator of the host takes a fifth of a second a forward."""
    return HOST if backend == "host" else DEVICE


def stored_logits() -> dict[str, dict[str, str]]:
    """By a checkpoint's identity, SHA-256 of the logits and of the state of a fixed run, as the host gave them."""
    return dict(json.loads(STORED.read_text("ascii"))) if STORED.exists() else {}


def write_logits(folder: Path) -> dict[str, str]:
    """Runs the fixed run on the host and stores its digests beside those of other checkpoints."""
    with closing(make_runner(folder, "host")) as runner:
        found = RowLaw(runner).digests()
        everything = {**stored_logits(), runner.checkpoint.identity: found}
    STORED.write_text(json.dumps(dict(sorted(everything.items())), indent=1) + "\n", "ascii")
    return found


def make_runner(folder: Path, backend: str) -> Runner:
    """The checkpoint's network on a backend by name."""
    return Runner(folder, lambda config: make_backend(backend, config))


def end_to_end(identity: str, found: dict[str, str], stored: dict[str, dict[str, str]]) -> Finding:
    """Bits of a whole run against those of the host; a checkpoint that the host never ran has nothing to equal."""
    wanted = stored.get(identity)
    name = "logits and state have the host's bits"
    if wanted is None:
        return Finding(name, True, f"no stored digest of this checkpoint; logits {found['logits'][:16]}")
    other = sorted(k for k in found if found[k] != wanted.get(k))
    return Finding(name, not other, f"other bits in {', '.join(other)}" if other else f"logits {found['logits'][:16]}")


def row_findings(runner: Runner, size: Size) -> list[tuple[str, Callable[[], list[Finding]]]]:
    """The checks of the network, by what they are called should they not end."""
    law, identity = RowLaw(runner), runner.checkpoint.identity
    checks: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("row check", lambda: [law.row_check()]),
        ("one launch", lambda: [law.one_launch()]),
        ("decode steps", lambda: [law.decode_steps()]),
        ("several slots", lambda: [law.several_slots()]),
        ("prompt", lambda: [law.prompt(size.decoded)]),
        ("end to end", lambda: [end_to_end(identity, law.digests(), stored_logits())]),
    ]
    return [*checks, ("replay", lambda: [law.replayed()])] if runner.backend.traceable else checks


def examine(folder: Path, backend: str, say: Say = lambda line: None, size: Size | None = None) -> dict[str, Any]:
    """Every check on one checkpoint as plain data: findings, numbers, and whether all held; `say` hears them."""
    begun, size = time.perf_counter(), size or size_of(backend)
    findings: list[Finding] = []
    numbers: dict[str, Any] = {}

    def take(name: str, check: Callable[[], list[Finding]]) -> None:
        for finding in guarded(name, check):
            findings.append(finding)
            say(f"{'ok  ' if finding.ok else 'FAIL'} {finding.name}: {finding.detail}")

    with Checkpoint.open(folder) as checkpoint:
        identity = checkpoint.identity
        if backend == "metal":
            take("mapping", lambda: [used_where_they_lie(checkpoint)])

    def rows() -> list[Finding]:
        with closing(make_runner(folder, backend)) as runner:
            for name, check in row_findings(runner, size):
                take(name, check)
        return []

    def laws() -> list[Finding]:
        with Model.load(folder, backend=backend, prefix_bytes=0, draft_policy="fixed", progress=False) as model:
            take("laws", lambda: Laws(model, size.prompts, size.tokens).findings(size.drafted, size.batched))
            take("memory", lambda: constant_memory(model, size.pool_bytes, size.rounds))
            numbers.update(speed(model, size.prompt, size.reply))
        return []

    for name, part in (("the network", rows), ("the model", laws)):
        take(name, part)
        gc.collect()
        mx.clear_cache()
    return {
        "checkpoint": folder.resolve().name,
        "identity": identity,
        "findings": [f._asdict() for f in findings],
        "tokens_per_second": numbers,
        "seconds": round(time.perf_counter() - begun, 1),
        "ok": all(f.ok for f in findings),
    }
