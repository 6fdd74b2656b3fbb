"""Decodes with routed experts streamed from disk, beside the time that the disk alone needs for the bytes read.

A checkpoint of real layers is written (--gb of routed experts), with --light of real experts under a small attention,
or given by --model. Before every token the system is asked to let the files' pages go, and so before the disk's own
rate is measured: parallel reads of as many experts with nothing computed. The same tokens are decoded with all experts
in memory, for what computing takes and for equal tokens. Exit status 1 if a token differs, or if a streamed token takes
more than --most times what the slower of disk and computing takes alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

import tensorfold
from benchmarks import common
from benchmarks.engram import forget
from tensorfold import Model
from tensorfold.backend.pool import LEAVES
from tensorfold.checkpoint import Checkpoint
from tensorfold.checkpoint.pieces import PieceReader
from tensorfold.network.streaming import Streaming
from tensorfold.testing import synthetic

PROMPT = [11, 257, 1031, 77]
EXPERT = 3 * (5120 * 2304 // 2 + 5120 * 2304 // 32)  # bytes of an expert at the real size
LAYERS, DRAW = 4, 7  # layers written; seed of the experts that the disk is measured with
CUT: dict[str, Any] = {
    "n_layers": LAYERS, "compress_ratios": [0, 2, 1, 1, 0, 0, 0], "kv_source_layers": [1, 2],
    "index_source_layers": [1, 2], "candidate_source_layer": 2, "vocab_size": 4096, "image_token_id": 4095,
}  # fmt: skip
LIGHT = {"n_heads": 8, "q_lora_rank": 256, "o_groups": 4, "o_lora_rank": 128, "index_n_heads": 4}


@dataclass
class Token:
    """One decoding round: seconds, and what was read for it."""

    seconds: float
    misses: int
    nbytes: int
    read: float
    stall: float
    from_disk: int | None


def storage_bytes() -> int | None:
    """What this process has had read from storage; None where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text().split("\n")
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def decode(model: Model, tokens: int, folder: Path | None) -> tuple[list[int], list[Token]]:
    """The reply, and its rounds after the prompt's; the pages of `folder` are let go before each."""
    slot, found = model.open(PROMPT, max_tokens=tokens, draft=False, logit_bias={1: -float("inf")}), list[Token]()
    while not slot.done:
        if folder is not None:
            forget(folder)
        stored, before, begun = storage_bytes(), model.streaming or Streaming(0, 0, 0), time.perf_counter()
        model.step()
        seconds, after = time.perf_counter() - begun, model.streaming or Streaming(0, 0, 0)
        if len(slot.tokens) > 1:
            found.append(
                Token(
                    seconds, after.misses - before.misses, after.bytes_read - before.bytes_read,
                    after.read_seconds - before.read_seconds, after.stall_seconds - before.stall_seconds,
                    None if stored is None else (storage_bytes() or 0) - stored,
                )
            )  # fmt: skip
    with slot:
        return slot.tokens, found


def disk_rate(checkpoint: Checkpoint, experts: int, turns: int) -> list[float]:
    """Bytes a second of parallel reads of so many experts, drawn anew each turn and not in the page cache."""
    rng, config, reader, rates = np.random.default_rng(DRAW), checkpoint.config, PieceReader(), list[float]()
    for _ in range(turns):
        some = rng.choice(config.num_hidden_layers * config.n_routed_experts, experts, replace=False)
        names = [f"layers.{i % config.num_hidden_layers}.ffn.experts.{i // config.num_hidden_layers}" for i in some]
        pieces = [checkpoint.piece(f"{name}.{leaf}") for name in names for leaf in LEAVES]
        room = [(piece, np.full(piece.nbytes, 1, np.uint8)) for piece in pieces]  # memory that is there already
        forget(checkpoint.path)
        seconds, _ = reader.begin(room).wait()
        rates.append(sum(piece.nbytes for piece in pieces) / seconds)
    reader.close()
    return rates


def main() -> int:
    parser = common.arguments(__doc__)
    parser.set_defaults(model=None)
    parser.add_argument(
        "--folder", type=Path, help="where the checkpoint is written, by default in the temporary folder"
    )
    parser.add_argument("--gb", type=float, default=7.0, help="gigabytes of routed experts to write")
    parser.add_argument(
        "--light", action="store_true", help="write a small attention, so that experts are all that counts"
    )
    parser.add_argument("--room", type=float, default=0.25, help="share of the routed experts that the pool holds")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--most", type=float, default=1.3)
    parser.add_argument("--warm", action="store_true", help="leave the files in the page cache")
    args = parser.parse_args()
    if args.quick:
        args.model, args.tokens = args.model or common.TINY, 6
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        if args.model is None:
            args.model = Path(scratch) / "model"
            args.model.mkdir()
            cut = {**CUT, **(LIGHT if args.light else {}), "n_routed_experts": int(args.gb * 1e9 / LAYERS / EXPERT)}
            synthetic.write(args.model, "published", engram=False, drafter=False, **cut)
        return measure(args)


def measure(args: argparse.Namespace) -> int:
    about = tensorfold.describe(args.model)
    budget = max(1, int(args.room * about.routed_experts)) * about.expert_bytes
    cold = not args.warm and forget(args.model)
    options: dict[str, Any] = {"draft": False, "max_slots": 1, "prefix_bytes": 0}
    with common.load(args, experts="mapped", **options) as model:
        decode(model, 2, None)
        right, whole = decode(model, args.tokens, None)
    with Checkpoint.open(args.model, drafter=False) as checkpoint:
        asked = checkpoint.config.num_hidden_layers * checkpoint.config.num_experts_per_tok
        with common.load(args, experts="streamed", expert_bytes=budget, **options) as model:
            rates = disk_rate(checkpoint, asked, 4)
            tokens, found = decode(model, args.tokens, None if args.warm else args.model)
            rates += disk_rate(checkpoint, asked, 4)
    rate, mean = statistics.median(rates), statistics.fmean
    took, nbytes = mean(t.seconds for t in found), mean(t.nbytes for t in found)
    disk, computing, equal = nbytes / rate, mean(t.seconds for t in whole), tokens == right
    slower, stored = max(disk, computing), [t.from_disk for t in found if t.from_disk is not None]
    came = sum(stored) / max(1, sum(t.nbytes for t in found)) if stored else None
    room, given = budget // about.expert_bytes, "unknown" if came is None else f"{came:.2f}"
    print(f"{about.routed_bytes / 1e9:.2f} GB in {about.routed_experts} routed experts, room for {room}")
    print(f"pages let go before each token: {cold}; share of the bytes that storage gave: {given}")
    print(f"disk {rate / 1e9:.2f} GB/s ({min(rates) / 1e9:.2f} to {max(rates) / 1e9:.2f}), {asked} experts at a time")
    print(f"a token: {took:.3f} s, {mean(t.misses for t in found):.1f} experts read, {nbytes / 1e6:.0f} MB")
    print(f"reads under way {mean(t.read for t in found):.3f} s, in {mean(t.stall for t in found):.3f} s of it no work")
    print(f"disk alone {disk:.3f} s, computing alone {computing:.3f} s; tokens equal: {equal}")
    over = {"disk": took / max(disk, 1e-9), "slower": took / slower, "both": took / (disk + computing)}
    print(f"over the disk {over['disk']:.2f}, over the slower {over['slower']:.2f}, over both {over['both']:.2f}")
    common.report(
        args, common.checkpoint_facts(args.model, random_weights=not args.quick),
        {"tokens": len(found), "experts": about.routed_experts, "room": room},
        common.joined_sha([str(tokens)]), equal=equal, cold=cold, disk_bytes_per_s=rates, streamed_s=took,
        misses=mean(t.misses for t in found), bytes_read=nbytes, read_s=mean(t.read for t in found),
        stall_s=mean(t.stall for t in found), disk_s=disk, computing_s=computing,
        over=over, share_from_storage=came,
    )  # fmt: skip
    return int(not equal or (not args.quick and took > args.most * slower))


if __name__ == "__main__":
    sys.exit(main())
