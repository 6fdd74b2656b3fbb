"""Gathers the Engram rows of a round from tables on disk: cold, from the page cache, and hot rows again.

Tables of --gb gigabytes are written as holes, or with random bytes (--random), and every round asks for other rows.
Exit status 1 if the median gather of --rows tokens from the page cache takes longer than --most-ms.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import common
from tensorfold.checkpoint.files import ShardFile
from tensorfold.checkpoint.headers import read_header
from tensorfold.checkpoint.inventory import TensorSpec
from tensorfold.checkpoint.table import Table
from tensorfold.config import ModelConfig
from tensorfold.network.engram import EngramTables
from tensorfold.network.engram_hash import engram_primes
from tensorfold.testing.synthetic import write_shard
from tensorfold.testing.synthetic_config import flat_config

ROW = 264
DIM, SCALES, HEADS, ORDERS = 256, 8, 8, 3


class Source:
    """The tables of one folder, by name."""

    def __init__(self, folder: Path):
        self._at = {}
        for path in sorted(folder.glob("*.safetensors")):
            header = read_header(path)
            file = ShardFile(path, header.stamp)
            self._at.update({name: (file, entry) for name, entry in header.entries.items()})

    def table(self, name: str) -> Table:
        file, entry = self._at[name]
        return Table(file, name, entry)


class RandomBytes:
    """Draws any bytes, a block over and over."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def draw(self, name: str, spec: TensorSpec) -> np.ndarray:
        block = np.frombuffer(self._rng.bytes(2**20), np.uint8)
        return np.resize(block, spec.shape)


def config_of(gigabytes: float) -> ModelConfig:
    """The published config with tables of about so many bytes."""
    flat = flat_config(
        "published", True, True, {"engram_vocab_size": int(gigabytes * 1e9 / (2 * ORDERS * HEADS * ROW))}
    )
    rows = engram_primes(2, ORDERS, HEADS, flat["engram_vocab_size"]).reshape(2, -1).sum(axis=1)
    return ModelConfig.from_flat(
        {**flat, "engram_num_embeddings": [int(n) for n in rows], "engram_compressed_vocab_size": 99_092}
    )


def write(folder: Path, config: ModelConfig, random: bool) -> None:
    for layer, rows in zip(config.engram_layer_ids, config.engram_num_embeddings):
        name = f"layers.{layer}.engram.embed"
        tensors = {
            f"{name}.weight": TensorSpec("F8_E4M3", (rows, DIM)),
            f"{name}.scale": TensorSpec("F8_E8M0", (rows, SCALES)),
        }
        weights: Any = RandomBytes(layer) if random else None
        write_shard(folder / f"{layer:02d}.safetensors", tensors, weights)


def forget(folder: Path) -> bool:
    """Asks the system to let the files' pages go."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def runs(rng: np.random.Generator, rows: int, slots: int) -> list[tuple[list[int], list[int]]]:
    """A round of `rows` tokens over `slots` slots, each with three ids before it."""
    cuts = np.array_split(rng.integers(3, 99_000, rows), slots)
    return [(rng.integers(3, 99_000, 3).tolist(), part.tolist()) for part in cuts]


def timed(tables: EngramTables, rounds: list[Any]) -> list[float]:
    took = []
    for one in rounds:
        begun = time.perf_counter()
        tables.gather(one)
        took.append(1000 * (time.perf_counter() - begun))
    return took


def main() -> int:
    parser = common.arguments(__doc__, model=None)
    parser.add_argument("--folder", type=Path, help="where the tables are written, by default in the temporary folder")
    parser.add_argument("--gb", type=float, default=4.0, help="gigabytes of tables")
    parser.add_argument("--random", action="store_true", help="write bytes and not holes, so that a cold read reads")
    parser.add_argument("--rows", type=int, default=16, help="tokens of a round")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--most-ms", type=float, default=5.0)
    args = parser.parse_args()
    if args.quick:
        args.gb, args.rounds = 0.05, 20
    config = config_of(args.gb)
    token_map = np.arange(config.vocab_size) % config.engram_compressed_vocab_size
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        folder, rng = Path(scratch), np.random.default_rng(1)
        write(folder, config, args.random)
        rounds = [runs(rng, args.rows, args.slots) for _ in range(args.rounds)]
        none = EngramTables(Source(folder), config, token_map, cache_bytes=0)
        hot = EngramTables(Source(folder), config, token_map, cache_bytes=2**30)
        forgotten = forget(folder)
        results = {"cold": timed(none, rounds), "page cache": timed(none, rounds)}
        timed(hot, rounds)
        results["hot rows"] = timed(hot, rounds)
        none.close()
        hot.close()
        length = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    found = {
        name: {"median_ms": statistics.median(t), "p95_ms": sorted(t)[int(0.95 * len(t))]}
        for name, t in results.items()
    }
    reads = 2 * 2 * ORDERS * HEADS * args.rows
    print(f"{length / 1e9:.2f} GB of tables ({'random bytes' if args.random else 'holes'}), {args.rows} rows a round, "
          f"{args.slots} slots: {reads} reads at most; pages forgotten first: {forgotten}")  # fmt: skip
    for name, times in found.items():
        print(f"{name:>12}: median {times['median_ms']:.2f} ms, 95% {times['p95_ms']:.2f} ms")
    facts = {"label": "real layer", "weights": "random" if args.random else "holes"}
    common.report(args, facts, {"rounds": args.rounds, "rows": args.rows, "bytes": length}, "", gather=found,
                  forgotten=forgotten)  # fmt: skip
    return int(not args.quick and found["page cache"]["median_ms"] > args.most_ms)


if __name__ == "__main__":
    sys.exit(main())
