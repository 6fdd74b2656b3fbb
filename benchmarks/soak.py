"""Slots that join, leave, fork, resume and draft at random, for long: replies equal plain solo runs, memory stays flat.

Each (prompt, seed) is first generated alone and undrafted. Then slots are opened at random with every draft width,
cancelled, forked, saved and restored in between; whatever a slot has produced must be a beginning of the solo reply.
Exit status 1 for any mismatch, and in the full form for memory that grows.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mlx.core as mx

import tensorfold as tf
from benchmarks import common
from tensorfold.engine.reply import token_sha

OPEN = (1, 1, 2, 2, 3, 4, 8)  # how many slots are wanted open, drawn anew every few rounds
TRICKS = ("cancel", "fork", "restore")
SIZES = ("per_domain", "tokens", "seeds", "widths", "steps", "sample")
FULL = (10, 128, [0, 1, 2], [0, 1, 2, 3, 4, 5], 20_000, 200)
SHORT = (1, 16, [0, 1], [0, 1, 2, 3, 4, 5], 120, 10)
QUICK = (1, 4, [1], [0, 5], 12, 4)
FLAT = {"active": 1.02, "rss": 1.05}  # the last quarter against the half before it


@dataclass
class Job:
    """One slot in flight: which reply it makes and at which length something happens to it."""

    key: tuple[int, int]
    width: int
    handle: tf.SlotHandle
    trick: str | None = None
    at: int = 0


class Soak:
    """The loop and what it counts."""

    def __init__(self, model: tf.Model, texts: list[str], args: Any, deadline: float):
        self.model, self.texts, self.args, self.deadline = model, texts, args, deadline
        self.rng = random.Random(args.random)
        self.solo: dict[tuple[int, int], list[int]] = {}
        self.jobs: list[Job] = []
        self.mismatches: list[dict[str, Any]] = []
        self.memory: list[tuple[int, int, int]] = []
        self.counts = dict.fromkeys(("rounds", "replies", "tokens_compared", *TRICKS), 0)
        self.widths_done: dict[int, int] = dict.fromkeys(args.widths, 0)

    def options(self, key: tuple[int, int]) -> dict[str, Any]:
        """Seed 0 stands for greedy."""
        sampled = {"temperature": 0.8, "top_p": 0.95, "seed": key[1]} if key[1] else {}
        return {"max_tokens": self.args.tokens, "parse_special": True, **sampled}

    def alone(self) -> None:
        """The replies that everything is held against."""
        for key in product(range(len(self.texts)), self.args.seeds):
            if time.monotonic() > self.deadline - 0.6 * self.args.minutes * 60:
                break  # a capped run keeps most of its time for the rounds
            self.solo[key] = common.generate(self.model, self.texts[key[0]], draft=False, **self.options(key)).tokens

    def run(self) -> None:
        """Every reply at every width in random order, then more of them until the rounds are done or the time is."""
        todo = [(key, width) for key in self.solo for width in self.args.widths]
        self.rng.shuffle(todo)
        wanted = 1
        while time.monotonic() < self.deadline and (self.jobs or todo or self.counts["rounds"] < self.args.steps):
            if self.counts["rounds"] % 16 == 0:
                wanted = self.rng.choice(OPEN)
            enough = not todo and self.counts["rounds"] >= self.args.steps
            while len(self.jobs) < wanted and not enough:
                self.jobs.append(self.open(*(todo.pop() if todo else self.any_job())))
            self.model.step()
            self.counts["rounds"] += 1
            for job in list(self.jobs):
                self.look(job)
            if self.counts["rounds"] % self.args.sample == 0:
                self.memory.append((self.counts["rounds"], mx.get_active_memory(), common.rss()))
        for job in list(self.jobs):
            self.leave(job)
        self.todo = len(todo)

    def any_job(self) -> tuple[tuple[int, int], int]:
        return self.rng.choice(list(self.solo)), self.rng.choice(self.args.widths)

    def open(self, key: tuple[int, int], width: int) -> Job:
        handle = self.model.open(self.texts[key[0]], draft=width > 0, max_drafts=width, **self.options(key))
        trick = self.rng.choice(TRICKS) if self.rng.random() < 0.2 else None
        return Job(key, width, handle, trick, self.rng.randrange(1, self.args.tokens))

    def look(self, job: Job) -> None:
        """Takes a finished slot away; plays a waiting trick."""
        if job.handle.done:
            self.leave(job)
        elif job.trick and len(job.handle.tokens) >= job.at:
            trick, job.trick = job.trick, None
            self.counts[trick] += 1
            if trick == "cancel":
                job.handle.cancel()
                self.leave(job)
            elif trick == "fork" and len(self.jobs) < self.args.slots:
                self.jobs.append(Job(job.key, job.width, job.handle.fork()))
            elif trick == "restore":
                self.resume(job)

    def resume(self, job: Job) -> None:
        """The slot goes to a file, its place goes free, and it comes back."""
        with tempfile.TemporaryDirectory() as folder:
            job.handle.save(Path(folder) / "slot")
            job.handle.close()
            job.handle = self.model.restore(Path(folder) / "slot")

    def leave(self, job: Job) -> None:
        """Compares what the slot produced, and closes it."""
        self.jobs.remove(job)
        got, want = job.handle.tokens, self.solo[job.key]
        complete = job.handle.finish_reason in ("stop", "length")
        self.counts["replies"] += complete
        self.widths_done[job.width] += complete
        self.counts["tokens_compared"] += len(got)
        if got != want[: len(got)] or (complete and len(got) != len(want)) or job.handle.error is not None:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            what = {"prompt": job.key[0], "seed": job.key[1], "width": job.width, "at": at}
            self.mismatches.append({**what, "error": str(job.handle.error)})
            print(f"MISMATCH {what}", file=sys.stderr)
        job.handle.close()

    def flat(self) -> dict[str, Any]:
        """Most memory of the last quarter of the samples against the two quarters before it."""
        quarter = max(1, len(self.memory) // 4)
        late, before = self.memory[-quarter:], self.memory[quarter:-quarter] or self.memory[:-quarter]
        if not before:
            return {"samples": len(self.memory)}
        out: dict[str, Any] = {"samples": len(self.memory), "every_rounds": self.args.sample}
        for i, name in ((1, "active"), (2, "rss")):
            first, last = (max(m[i] for m in part) for part in (before, late))
            out |= {f"{name}_bytes_before": first, f"{name}_bytes_last": last, f"{name}_ratio": round(last / first, 4)}
        out["flat"] = all(out[f"{name}_ratio"] <= most for name, most in FLAT.items())
        return out


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--full", action="store_true", help="30 prompts, 128 tokens, 3 seeds, 6 widths, 20,000 rounds")
    parser.add_argument("--per-domain", type=int, help="prompts of each of the three domains")
    parser.add_argument("--tokens", type=int, help="tokens of a reply")
    parser.add_argument("--seeds", type=common.numbers, help="seeds, 0 for greedy")
    parser.add_argument("--widths", type=common.numbers, help="drafts a round")
    parser.add_argument("--steps", type=int, help="rounds at least")
    parser.add_argument("--slots", type=int, default=12, help="slots of the model")
    parser.add_argument("--sample", type=int, help="rounds between two looks at memory")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop then and say how far it got; 0: no limit")
    parser.add_argument("--random", type=int, default=0, help="seed of the order of joins and leaves")
    args = parser.parse_args()
    size = FULL if args.full else QUICK if args.quick else SHORT
    for name, value in zip(SIZES, size):
        if getattr(args, name) is None:
            setattr(args, name, value)
    begun = time.monotonic()
    deadline = begun + args.minutes * 60 if args.minutes else float("inf")
    texts = [text for group in common.prompts(most=args.per_domain, shortest=args.quick).values() for text in group]
    with common.load(args, max_slots=args.slots, prefix_bytes=2**20, draft_policy="fixed") as model:
        soak = Soak(model, texts, args, deadline)
        soak.alone()
        alone_s = time.monotonic() - begun
        soak.run()
    sha = common.joined_sha([token_sha(tokens) for tokens in soak.solo.values()])
    pairs, memory = len(texts) * len(args.seeds), soak.flat()
    planned = {"prompts": len(texts), "rounds": args.steps, "replies": pairs * len(args.widths)}
    planned |= {name: getattr(args, name) for name in ("tokens", "seeds", "widths")}
    counts = {**soak.counts, "solo_replies": len(soak.solo), "by_width": soak.widths_done, "not_reached": soak.todo}
    complete = not soak.todo and len(soak.solo) == pairs and soak.counts["rounds"] >= args.steps
    common.report(
        args, common.checkpoint_facts(args.model), counts, sha, planned=planned, complete=complete,
        mismatches=len(soak.mismatches), mismatch_list=soak.mismatches[:50], memory=memory,
        seconds={"alone": round(alone_s), "all": round(time.monotonic() - begun)},
    )  # fmt: skip
    print(f"{'complete' if complete else 'NOT complete'}: {counts}; {memory}; {len(soak.mismatches)} mismatches")
    return 1 if soak.mismatches or (args.full and not memory.get("flat", True)) else 0


if __name__ == "__main__":
    sys.exit(main())
