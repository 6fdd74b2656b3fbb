"""Real-size layers of every role on random weights: time a layer, launches, and the bytes it must read.

Each number is a median over runs of a graph in which the layer follows itself, so that launches wait for one another as
in a forward; `us` leaves out the building of that graph, which rounds do while the round before runs, `whole us` has
it. The floor is the bytes that a round of so many rows must read (every matrix once, each routed expert once) at the
speed of a copy measured in the same run. Rows belong to slots of up to six rows, at `--context` tokens.
Where mlx-lm is there, its layers are timed after ours: eager, all rows those of one sequence, building on the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mlx.core as mx
import numpy as np

from benchmarks.chart import line_chart
from benchmarks.common import ROOT, TINY, numbers, platform_facts
from benchmarks.kernels import Bench, failure, pick_backend, seconds
from benchmarks.make_full_size import published_config
from benchmarks.peer_layer import INSTALLED, PeerLayer, find
from benchmarks.random_layers import RandomSource
from tensorfold.backend.kernels import KernelBackend
from tensorfold.config import ModelConfig
from tensorfold.kernels import Kernel
from tensorfold.network.attention import Shared
from tensorfold.network.forward import Layer
from tensorfold.network.hyper import Streams
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.network.row_check import one_of_each_role
from tensorfold.state.caches import PAGE_TOKENS, Caches

MOST = 6  # rows of a slot
TURNS = 20  # of a layer in a graph, so that starting and ending one weigh little


class LayerBench:
    """Layers of a config on one backend; every layer's weights are drawn when it is measured."""

    def __init__(self, config: ModelConfig, backend: str, context: int, turns: int):
        self.config, self.context, self.turns = config, context, turns
        self.backend = KernelBackend(config, backend)
        self.source = RandomSource(config)
        self.compiled: Any = mx.compile if self.backend.traceable else lambda f: f
        slots = -(-16 // MOST)
        self.pages = slots * (-(-(context + MOST) // PAGE_TOKENS))
        self.caches = Caches(config, slots, self.pages)
        self.before: dict[int, Shared] = {}  # what earlier layers handed on, by rows

    def plan(self, rows: int) -> Plan:
        windows, each = [], self.pages // self.caches.slots
        for slot, first in enumerate(range(0, rows, MOST)):
            ids = list(range(min(MOST, rows - first)))
            windows.append(Segment(slot, self.context, ids, range(slot * each, (slot + 1) * each), []))
        shape = (rows, self._engram_heads, self.config.engram_head_dim)
        codes = np.random.default_rng(0).integers(0, 0x70, shape, dtype=np.uint8)
        scales = np.full((*shape[:2], shape[2] // 32), 120, np.uint8)
        return Planner(self.config).build(windows, self.caches.slots, self.pages, [(codes, scales)] * 2)

    @property
    def _engram_heads(self) -> int:
        return self.config.engram_n_heads * (self.config.engram_max_ngram_size - 1)

    def measure(self, index: int, rows_list: list[int], copy: float, repeats: int) -> list[dict[str, Any]]:
        """Lines of one layer; its selection and new rows stay for the layers after it."""
        layer, found = Layer(self.source, self.config.roles[index], self.config, self.backend, None), []
        for rows in rows_list:
            launches, took, whole = self._rows(layer, rows, repeats)
            nbytes = self.bytes_read(layer, rows)
            floor = nbytes / copy
            found.append({
                "layer": index, "role": role_name(layer.role), "rows": rows, "launches": launches, "us": took * 1e6,
                "whole_us": whole * 1e6, "bytes": nbytes, "floor_us": floor * 1e6, "times_floor": took / floor,
            })  # fmt: skip
            print(line(found[-1]), flush=True)
        return found

    def _rows(self, layer: Layer, rows: int, repeats: int) -> tuple[int, float, float]:
        """Launches of a layer on so many rows, its seconds, and its seconds with building."""
        plan, before = self.plan(rows), self.before.get(rows, Shared({}))
        x = mx.random.normal((rows, self.config.hc_mult, self.config.hidden_size)).astype(mx.bfloat16)
        pre = mx.full((rows, self.config.hc_mult), 0.25)

        def once(s: Streams, out: list[Any], shared: Shared) -> Streams:
            s, row = layer(layer.inject(s, plan), plan, self.caches, shared, layer)
            out += [row, *(a for n in shared.new.values() for a in (n.rows, n.keys, n.pairs) if a is not None)]
            return s

        def chain(x: mx.array, pre: mx.array) -> list[Any]:
            out: list[Any] = []
            s = Streams(x, pre)
            for _ in range(self.turns):
                s = once(s, out, _copy(before))
            return [s.x, s.pre, *out]

        after, first = _copy(before), once(Streams(x, pre), [], _copy(before))
        mx.eval(first)
        launches = count_launches(lambda: once(first, [], after))
        mx.eval([a for n in after.new.values() for a in (n.rows, n.keys)], after.selection)
        self.before[rows] = after
        graph = self.compiled(chain)
        took, whole = (seconds(lambda: graph(x, pre), repeats, ahead) / self.turns for ahead in (True, False))
        return launches, took, whole

    def bytes_read(self, layer: Layer, rows: int) -> int:
        """Weights that a launch of so many rows reads: every matrix, and each routed expert once."""
        prefix, c = f"layers.{layer.role.layer}.", self.config
        always = [n for n in self.source.names(prefix) if ".ffn.experts." not in n and ".engram.embed" not in n]
        plain = sum(spec_bytes(self.source, n) for n in always)
        x = mx.random.normal((rows, c.hidden_size)).astype(mx.bfloat16)
        ids, _ = layer.moe.route(x)
        one = sum(spec_bytes(self.source, n) for n in self.source.names(f"{prefix}ffn.experts.0."))
        return plain + one * len(np.unique(np.array(ids)))


def spec_bytes(source: RandomSource, name: str) -> int:
    """Bytes of one tensor in the file."""
    raw = source.raw(name)
    return int(raw.size) * raw.itemsize


def _copy(shared: Shared) -> Shared:
    return Shared(dict(shared.new), shared.selection, dict(shared.places), shared.candidates)


def count_launches(run: Any) -> int:
    """Kernel launches of one call; mx operations of the plan's glue are not among them."""
    count, call = [0], Kernel.__call__

    def counted(self: Kernel, *arrays: mx.array, **options: Any) -> list[mx.array]:
        count[0] += 1
        return call(self, *arrays, **options)

    Kernel.__call__ = counted  # type: ignore[method-assign]
    try:
        mx.eval(run())
    finally:
        Kernel.__call__ = call  # type: ignore[method-assign]
    return count[0]


def role_name(role: Any) -> str:
    """What the layer owns, in a word or two."""
    words = {"kv": role.owns_kv, "index": role.owns_index, "engram": role.engram is not None}
    owned = "+".join(word for word, has in words.items() if has)
    return ", ".join(filter(None, (f"ratio {role.ratio}", owned, role.candidates and f"{role.candidates}s candidates")))


def line(r: dict[str, Any]) -> str:
    """One row of the table."""
    return (
        f"| {r['layer']} | {r['role']} | {r['rows']} | {r['launches']} | {r['us']:.0f} | {r['whole_us']:.0f} | "
        f"{r['bytes'] / 1e6:.0f} | {r['floor_us']:.0f} | {r['times_floor']:.2f} |"
    )


HEAD = "| layer | role | rows | launches | us | whole us | MB | floor us | of floor |\n" + "|---" * 9 + "|"
PEER_HEAD = "| layer | role | rows | mlx-lm us | ours us | times |\n|---|---|---|---|---|---|"


def beside(module: Any, bench: LayerBench, ours: list[dict[str, Any]], repeats: int) -> list[dict[str, Any]]:
    """mlx-lm's layers beside ours, those with Engram left out; a layer that fails becomes a line of its own."""
    found: list[dict[str, Any]] = []
    for index in dict.fromkeys(one["layer"] for one in ours):
        role = bench.config.roles[index]
        if role.engram is not None:
            continue
        try:
            for one in _timed(module, bench, [one for one in ours if one["layer"] == index], repeats):
                found.append(one)
                print(peer_line(one), flush=True)
        except Exception as error:
            found.append({"layer": index, "role": role_name(role), "error": failure(error)})
            print(peer_line(found[-1]), flush=True)
        mx.clear_cache()
    return found


def _timed(module: Any, bench: LayerBench, ours: list[dict[str, Any]], repeats: int) -> Iterator[dict[str, Any]]:
    """Lines of one of mlx-lm's layers, which goes when they are all there."""
    peer = PeerLayer(module, bench.config, ours[0]["layer"])
    for one in ours:
        us = peer.time(one["rows"], bench.context, bench.turns, repeats) * 1e6
        same = {n: one[n] for n in ("layer", "role", "rows")}
        yield {**same, "mlx_lm_us": us, "ours_us": one["whole_us"], "times": us / one["whole_us"]}


def peer_line(r: dict[str, Any]) -> str:
    """One row of the second table."""
    if "error" in r:
        return f"| {r['layer']} | {r['role']} | {r['error']} | | | |"
    times = f"{r['mlx_lm_us']:.0f} | {r['ours_us']:.0f} | {r['times']:.2f}"
    return f"| {r['layer']} | {r['role']} | {r['rows']} | {times} |"


def foot(peer: dict[str, Any]) -> str:
    """The first table's foot: what the second one is, or why there is none."""
    if "not_timed" in peer:
        return f"mlx-lm's layers were not timed: {peer['not_timed']}"
    return f"mlx-lm {peer['version']} in the same run: eager, rows of one sequence, no Engram; both with building"


def write(
    folder: Path, title: str, facts: dict[str, Any], lines: list[dict[str, Any]], peer: dict[str, Any] | None = None
) -> None:
    """Tables, numbers and plot."""
    name = "decode_layer_quick" if facts["quick"] else "decode_layer"
    folder.mkdir(parents=True, exist_ok=True)
    theirs = (peer or {}).get("lines", [])
    text = [title, "", HEAD, *map(line, lines)]
    text += ["", foot(peer)] if peer else []
    text += ["", PEER_HEAD, *map(peer_line, theirs)] if theirs else []
    (folder / f"{name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    found = {"platform": platform_facts(), **facts, "lines": lines} | ({"mlx_lm": peer} if peer else {})
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.svg").write_text(plot(found, theirs), encoding="utf-8")


def plot(found: dict[str, Any], theirs: list[dict[str, Any]]) -> str:
    """Layers with building on the clock, on both sides, and what a copy of their bytes takes."""
    peers, lines = [one for one in theirs if "error" not in one], found["lines"]
    shown = {one["layer"] for one in peers} or {one["layer"] for one in lines}
    series: dict[str, list[list[tuple[float, float]]]] = {}
    for one in (one for one in lines if one["layer"] in shown):
        ours, _, copies = series.setdefault(f"{one['layer']}: {one['role']}", [[], [], []])
        ours.append((one["rows"], one["whole_us"]))
        copies.append((one["rows"], one["floor_us"]))
    for one in peers:
        series[f"{one['layer']}: {one['role']}"][1].append((one["rows"], one["mlx_lm_us"]))
    what = "single layers of the published sizes, random weights"
    title = f"{what}; {found['backend']}; solid: ours, dashed: mlx-lm, dotted: a copy of the same bytes"
    return line_chart(title, "rows of a launch", "us", series, log=True)


def peer_argument(parser: argparse.ArgumentParser) -> None:
    """The option that says where mlx-lm is."""
    parser.add_argument("--mlx-lm", default=INSTALLED, metavar="FOLDER", help="holds mlx_lm; auto: what is installed")


def find_peer(parser: argparse.ArgumentParser, where: str) -> tuple[Any, dict[str, Any]]:
    """mlx-lm's module and what is said of it; ends the program where a named folder does not hold it."""
    try:
        module, version = find(where)
    except ImportError as error:
        if where != INSTALLED:
            parser.error(f"--mlx-lm: {error}")
        return None, {"not_timed": str(error)}
    return module, {"version": version}


def time_peer(module: Any, peer: dict[str, Any], bench: LayerBench, lines: list[dict[str, Any]], repeats: int) -> None:
    """Adds mlx-lm's lines to `peer`, if it is there, and prints them under their foot."""
    print(f"\n{foot(peer)}", flush=True)
    if module:
        print(f"\n{PEER_HEAD}", flush=True)
        peer["lines"] = beside(module, bench, lines, repeats)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny layers: shows that it runs, measures nothing")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 6, 8, 16], help="rows of a launch")
    parser.add_argument("--layers", type=numbers, default=None, help="layers to measure; default: one of each role")
    parser.add_argument("--context", type=int, default=4096, help="tokens before the rows, in every slot")
    parser.add_argument("--turns", type=int, default=TURNS, help="how often the layer follows itself in a graph")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of table and plot")
    peer_argument(parser)
    args = parser.parse_args()
    module, peer = find_peer(parser, args.mlx_lm)
    backend = pick_backend()
    config = ModelConfig.from_folder(TINY) if args.quick else ModelConfig.from_flat(published_config())
    copy = Bench(backend, args.quick).copy()
    title = f"Decode layers, {backend}{', smoke run' * args.quick}; a copy runs at {copy / 1e12:.2f} TB/s"
    print(f"{title}\n\n{HEAD}", flush=True)
    bench, lines = LayerBench(config, backend, args.context, 2 if args.quick else args.turns), []
    repeats = 3 if args.quick else 9
    layers = args.layers or one_of_each_role(config)
    for at, index in enumerate(layers):
        role = config.roles[index]
        if missing := {role.kv_source, role.index_source} - {None, *layers[: at + 1]}:
            parser.error(f"--layers: layer {index} reads what layers {sorted(missing)} hand on: name them before it")
    for index in layers:
        lines += bench.measure(index, args.rows, copy, repeats)
        mx.clear_cache()
    time_peer(module, peer, bench, lines, repeats)
    write(args.out, title, {"backend": backend, "quick": args.quick, "copy_tb_s": copy / 1e12}, lines, peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
