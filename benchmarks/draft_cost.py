"""What a drafting pass costs beside a forward, at real sizes on random weights, and what that makes of drafts.

The forward is the sum of all layers, each at the time of one layer of its role, and the head. The pass is the drafter's
three stages, its head and its Markov steps for one slot, with the ingest of a kept row. The projection takes how many
of 1 to 5 drafts are accepted (`--accepted`, by default figures published by third parties for the real weights; random
weights have none) and the times of this run; it leaves out the host's work between rounds and the building of forwards,
done while the round before runs. The layers' table, mlx-lm's beside it, is written as `decode_layer.py` writes it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mlx.core as mx
import numpy as np

from benchmarks.common import ROOT, TINY, numbers, platform_facts
from benchmarks.decode_layer import HEAD, TURNS, LayerBench, find_peer, peer_argument, time_peer, write
from benchmarks.kernels import Bench, pick_backend, seconds
from benchmarks.make_full_size import published_config
from tensorfold.config import ModelConfig
from tensorfold.engine.rows import RowParams
from tensorfold.network.dspark import Drafter
from tensorfold.network.forward import Network
from tensorfold.network.head import Head
from tensorfold.network.rope import RopeTables
from tensorfold.network.row_check import kind_of, one_of_each_role
from tensorfold.state.caches import Caches

ACCEPTED = (0.90, 1.67, 2.30, 2.81, 3.22)


def forward_seconds(
    bench: LayerBench, rows: list[int], copy: float, repeats: int
) -> tuple[dict[int, float], list[dict[str, Any]]]:
    """Seconds of all layers by rows of the launch, and the lines of the layers measured."""
    each: dict[Any, dict[int, float]] = {}
    every = []
    for index in one_of_each_role(bench.config):
        lines = bench.measure(index, rows, copy, repeats)
        each.setdefault(kind_of(bench.config.roles[index]), {r["rows"]: r["us"] / 1e6 for r in lines})
        every += lines
        mx.clear_cache()
    return {n: sum(each[kind_of(role)][n] for role in bench.config.roles) for n in rows}, every


def head_seconds(bench: LayerBench, rows: int, repeats: int) -> float:
    """Seconds of the head on so many rows, behind eight others."""
    head, config = Head(bench.source, bench.backend), bench.config
    x = mx.random.normal((rows, config.hc_mult, config.hidden_size)).astype(mx.bfloat16)
    pre = mx.full((rows, config.hc_mult), 0.25)
    graph = bench.compiled(lambda x, pre: [head(x + i * 0, pre) for i in range(8)])
    return seconds(lambda: graph(x, pre), repeats) / 8


def pass_seconds(bench: LayerBench, repeats: int) -> dict[str, float]:
    """Seconds of one slot's proposals and of the ingest of one row."""
    config, backend = bench.config, bench.backend
    network = object.__new__(Network)  # what a drafter needs of it: embedding and head
    network.config, network.backend = config, backend
    network.embedding, network.head = bench.source.array("embed.weight"), Head(bench.source, backend)
    drafter = Drafter(bench.source, config, backend, network)
    caches = Caches(config, 1, 1, len(drafter.stages))
    slots, tokens, last = (mx.array([value], mx.int32) for value in (0, 5, bench.context))
    table = RopeTables(config).window(np.arange(bench.context + 1, bench.context + 1 + drafter.block))[None]
    warm = RowParams().warmth(1)[:2]
    taps = mx.random.normal((1, config.hidden_size * len(config.dspark_target_layer_ids))).astype(mx.bfloat16)
    rotary = RopeTables(config).window(np.array([bench.context]))
    mx.eval(slots, tokens, last, table, warm, taps, rotary)

    def propose() -> Any:
        return drafter.propose_warm(caches, slots, tokens, last, table, *warm)

    return {"propose": seconds(propose, repeats), "ingest": seconds(lambda: drafter.ingest(taps, rotary), repeats)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    parser.add_argument("--context", type=int, default=4096, help="tokens before the rows")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 6], help="rows of a forward that are measured")
    parser.add_argument("--accepted", type=float, nargs=5, default=ACCEPTED, help="accepted of 1 to 5 drafts")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the table")
    peer_argument(parser)
    args = parser.parse_args()
    module, peer = find_peer(parser, args.mlx_lm)
    backend, repeats = pick_backend(), 1 if args.quick else 9
    config = ModelConfig.from_folder(TINY) if args.quick else ModelConfig.from_flat(published_config())
    copy = Bench(backend, args.quick).copy()
    print(f"{backend}; a copy runs at {copy / 1e12:.2f} TB/s\n\n{HEAD}", flush=True)
    bench = LayerBench(config, backend, 64 if args.quick else args.context, 2 if args.quick else TURNS)
    widths = sorted({1, 6, *args.rows})
    layers, measured = forward_seconds(bench, widths, copy, repeats)
    title = f"Decode layers, {backend}{', smoke run' * args.quick}; a copy runs at {copy / 1e12:.2f} TB/s"
    time_peer(module, peer, bench, measured, repeats)
    write(args.out, title, {"backend": backend, "quick": args.quick, "copy_tb_s": copy / 1e12}, measured, peer)
    heads = {n: head_seconds(bench, n, repeats) for n in widths}
    drafting = pass_seconds(bench, repeats)
    whole = {n: layers[n] + heads[n] for n in widths}
    spent, share = drafting["propose"] + drafting["ingest"], drafting["propose"] / layers[1]
    rows = np.arange(1, 7)
    at = np.interp(rows, widths, [whole[n] for n in widths])
    lines = [
        f"Drafting at real sizes, {backend}{', smoke run' * args.quick}; a copy runs at {copy / 1e12:.2f} TB/s",
        "",
        f"{config.num_hidden_layers} layers, one row: {layers[1] * 1e3:.2f} ms; head {heads[1] * 1e3:.2f} ms; "
        f"proposals of one slot {drafting['propose'] * 1e3:.2f} ms, {share:.0%} of the layers; "
        f"ingest of a row {drafting['ingest'] * 1e3:.2f} ms",
        "",
        "| drafts | accepted | rows | forward ms | drafting ms | tokens/s | over none |",
        "|---" * 7 + "|",
        f"| 0 | 0 | 1 | {at[0] * 1e3:.2f} | 0 | {1 / at[0]:.1f} | 1.00 |",
    ]
    for drafts, accepted in enumerate(args.accepted, 1):
        rate = (1 + accepted) / (at[drafts] + spent)
        lines.append(
            f"| {drafts} | {accepted} | {drafts + 1} | {at[drafts] * 1e3:.2f} | {spent * 1e3:.2f} | {rate:.1f} | "
            f"{rate * at[0]:.2f} |"
        )
    print("\n".join(lines), flush=True)
    name = "draft_cost_quick" if args.quick else "draft_cost"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = {"platform": platform_facts(), "backend": backend, "quick": args.quick, "copy_tb_s": copy / 1e12}
    found |= {"layers_s": layers, "head_s": heads, "drafting_s": drafting, "propose_of_layers": share}
    (args.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
