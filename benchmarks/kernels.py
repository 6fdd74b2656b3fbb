"""Matrix kernels against the memory's speed: time, bytes and share of a copy, beside MLX's own operations.

Each number is a median over runs of a compiled graph whose launches wait for one another, built before the clock is
started, as rounds build theirs while the round before runs; weights rotate through more than the caches hold. Ours wait
through an input that is not read; MLX's through a small addition to x, whose own chain is measured and taken off. The
copy is element-wise launches over 1 GiB, both directions counted; the FMA rate is eight chains a thread in registers; a
bare launch is the same chain of launches that do nothing; "gpu us" is the kernel alone, by torch's profiler where torch
is installed. See `kernel_cases.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mlx.core as mx

from benchmarks.chart import line_chart
from benchmarks.common import ROOT, numbers, platform_facts
from benchmarks.kernel_cases import SUBJECTS, Arrays, Subject
from tensorfold.kernels import Kernel, get
from tensorfold.kernels.launch import BackendError, launcher
from tensorfold.proof import host  # noqa: F401  offers the backend "host"

DISTINCT = 600 << 20  # bytes of weights in rotation
LARGE = 30 << 20  # bytes of a product that the plot shows


def pick_backend() -> str:
    """The GPU's, or the host's emulator for a smoke run."""
    return "cuda" if mx.cuda.is_available() else "metal" if mx.metal.is_available() else "host"


def seconds(run: Callable[[], Any], repeats: int, ahead: bool = False) -> float:
    """Median time of a run that ends with evaluated arrays, after two that do not count; `ahead`: without the building
    of its graph, which rounds do while the round before runs."""
    found = []
    for _ in range(repeats + 2):
        start, made = time.perf_counter(), run()
        start = time.perf_counter() if ahead else start
        mx.eval(made)
        mx.synchronize()
        found.append(time.perf_counter() - start)
    return median(found[2:])


class Bench:
    """One backend, chained launches; on the host eager ones, which show only that a case runs."""

    def __init__(self, backend: str, quick: bool):
        self.backend, self.quick = backend, quick or backend == "host"
        self.repeats, self.most = (1, 2) if self.quick else (9, 64)
        self._built: dict[str, Any] = {}
        self._compiled: Callable[[Any], Any] = mx.compile if backend != "host" else lambda f: f

    def copy(self) -> float:
        """Bytes a second, read and written, of element-wise launches over a large array."""
        count = 4 if self.quick else 24
        z = mx.zeros((1 << (20 if self.quick else 28),), mx.float32)
        mx.eval(z)

        def run() -> mx.array:
            return reduce(lambda y, _: mx.negative(y), range(count), z)

        return 2 * z.nbytes * count / min(seconds(run, 3) for _ in range(3))

    def small_kernel(self, name: str, body: str) -> Callable[..., mx.array]:
        """y float32 of `threads` from x float32 [8], by a few lines that Metal and CUDA both take."""
        make = mx.fast.cuda_kernel if self.backend == "cuda" else mx.fast.metal_kernel
        index = "blockIdx.x * blockDim.x + threadIdx.x" if self.backend == "cuda" else "thread_position_in_grid.x"
        built = make(name=name, input_names=["x"], output_names=["y"], source=f"unsigned i = {index};\n{body}")

        def run(x: mx.array, threads: int) -> mx.array:
            return built(
                inputs=[x], template=[], grid=(threads, 1, 1), threadgroup=(min(threads, 256), 1, 1),
                output_shapes=[(threads,)], output_dtypes=[mx.float32],
            )[0]  # fmt: skip

        return run

    def fma_rate(self) -> float | None:
        """Fused multiply-adds a second: eight chains a thread, nothing loaded in between."""
        if self.backend == "host":
            return None
        turns, threads, x = 4096, 1 << 20, mx.full((8,), 0.5)
        chains = "\n".join(f"a{j} = fma(a{j}, m, a{j});" for j in range(8))
        body = "float m = x[1];\n" + "\n".join(f"float a{j} = x[{j}] + float(i);" for j in range(8))
        body += f"\nfor (int t = 0; t < {turns}; t++) {{\n{chains}\n}}\ny[i] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;"
        kernel = self.small_kernel("bench_fma", body)
        return 8 * turns * threads / seconds(lambda: kernel(x, threads), 5)

    def bare_launch(self) -> float | None:
        """Seconds a launch of a chain of 64 that do next to nothing."""
        if self.backend == "host":
            return None
        kernel = self.small_kernel("bench_bare", "y[i] = x[i];")
        x = mx.zeros((32,))
        return (
            seconds(self._compiled(lambda: reduce(lambda y, _: kernel(y, 32), range(64), x)), self.repeats, True) / 64
        )

    def chain(self, copies: int) -> int:
        """Launches in a graph: every copy equally often."""
        return max(self.most // copies, 1) * copies

    def launch(self, kernel: Kernel, arrays: Arrays, options: Any, link: mx.array | None) -> mx.array:
        """One launch that waits for `link`; gives its first output."""
        if self.backend == "host":
            return launcher("host")(kernel, arrays, kernel.launch(arrays, **options))[0]
        if kernel.name not in self._built:
            header, body = kernel.texts[self.backend == "metal"]
            make = mx.fast.cuda_kernel if self.backend == "cuda" else mx.fast.metal_kernel
            self._built[kernel.name] = make(
                name=f"bench_{kernel.name}", input_names=[*kernel.inputs, "waits_for"],
                output_names=list(kernel.outputs), header=header, source=body,
            )  # fmt: skip
        plan = kernel.plan(arrays, kernel.geometry(self.backend, arrays, **options), **options)
        return self._built[kernel.name](
            inputs=[*arrays, mx.zeros((8,), plan.dtypes[0]) if link is None else link],
            template=list(plan.template.items()), grid=plan.grid, threadgroup=plan.threadgroup,
            output_shapes=list(plan.shapes), output_dtypes=list(plan.dtypes),
        )[0]  # fmt: skip

    def ours(self, subject: Subject, copies: list[Arrays], rows: int) -> tuple[float, float | None, bool]:
        """Seconds a launch, seconds of it on the GPU, and whether the first row has the bits it has alone."""
        kernel, count = get(subject.kernel), self.chain(len(copies))
        ready = [subject.inputs(weights, rows) for weights in copies]
        mx.eval(ready)

        def run() -> mx.array | None:
            y = None
            for i in range(count):
                y = self.launch(kernel, ready[i % len(ready)], subject.options, y)
            return y

        # inputs draw the same first rows for every count
        whole, alone = (self.launch(kernel, a, subject.options, None) for a in (ready[0], subject.inputs(copies[0], 1)))
        equal = bool(mx.array_equal(whole[: len(whole) // rows], alone).item())
        graph = self._compiled(run)
        return seconds(graph, self.repeats, True) / count, self.on_gpu(graph, kernel.name), equal

    def on_gpu(self, graph: Callable[[], Any], name: str) -> float | None:
        """Median seconds that the kernel ran, by torch's profiler; None where torch is not there."""
        if self.backend != "cuda" or find_spec("torch") is None:
            return None
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            mx.eval(graph())
            mx.synchronize()
        ran = [e.time_range.elapsed_us() for e in trace.events() if f"bench_{name}" in e.name]
        return median(ran) / 1e6 if ran else None

    def theirs(self, subject: Subject, copies: list[Arrays], rows: int) -> float | None:
        """Seconds of MLX's operation a launch, the links of the chain taken off."""
        rivals = [subject.rival(weights, rows) for weights in copies]
        if any(r is None for r in rivals):
            return None
        x, count = rivals[0][0], self.chain(len(copies))  # type: ignore[index]
        mx.eval(x)

        def run(products: bool) -> mx.array:
            v = x
            for index in range(count):
                found = rivals[index % len(rivals)][1](v) if products else [v]  # type: ignore[index]
                v = x + sum(y[:, :1] for y in found) * 0
            return v

        whole, links = (self._compiled(lambda products=p: run(products)) for p in (True, False))
        return max(seconds(whole, self.repeats, True) - seconds(links, self.repeats, True), 0.0) / count

    def measure(self, subject: Subject, rows_list: list[int], copy: float, fma: float | None) -> list[dict[str, Any]]:
        """All row counts of a subject; what fails becomes a line of its own."""
        copies = [subject.make(self.quick)]
        nbytes, found = subject.nbytes(copies[0]), []
        copies += [subject.make(self.quick) for _ in range(1 if self.quick else DISTINCT // nbytes)]
        mx.eval(copies)
        for rows in rows_list:
            nbytes = subject.read(copies[0], rows) if subject.read else nbytes
            line: dict[str, Any] = {"subject": subject.name, "kernel": subject.kernel, "rows": rows, "bytes": nbytes}
            try:
                took, ran, equal = self.ours(subject, copies, rows)
                speed = nbytes / took
                line |= {"us": took * 1e6, "tb_s": speed / 1e12, "of_copy": speed / copy, "equal": equal}
                if ran:
                    line |= {"gpu_us": ran * 1e6, "gpu_of_copy": nbytes / ran / copy}
                if fma and subject.products:
                    line["of_fma"] = rows * subject.products(copies[0]) / (ran or took) / fma
                rival = self.theirs(subject, copies, rows)
                line |= {"mlx_us": rival and rival * 1e6, "mlx_over_ours": rival and rival / took}
            except Exception as error:
                line["error"] = failure(error)
            found.append(line)
            print(row_text(line), flush=True)
        return found


def failure(error: Exception) -> str:
    """Its words on one line; the traceback goes to standard error."""
    traceback.print_exception(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].replace("|", "/")


def row_text(line: dict[str, Any]) -> str:
    """A line of the markdown table."""
    names = (
        ("us", ".1f"), ("of_copy", ".0%"), ("gpu_us", ".1f"), ("gpu_of_copy", ".0%"), ("of_fma", ".0%"),
        ("mlx_us", ".1f"), ("mlx_over_ours", ".2f"),
    )  # fmt: skip
    cells = [format(line[n], f) if line.get(n) else "" for n, f in names]
    last = line.get("error") or ("yes" if line["equal"] else "NO")
    return f"| {line['subject']} | {line['rows']} | {line['bytes'] / 1e6:.1f} | " + " | ".join([*cells, last]) + " |"


def main() -> int:
    """Measure, print, write; 1 when a case failed or bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shapes: shows that it runs, measures nothing")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 6, 8, 16, 64], help="row counts")
    parser.add_argument("--only", help="subjects whose name contains this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the two tables")
    args = parser.parse_args()
    bench = Bench(pick_backend(), args.quick)
    try:
        launcher(bench.backend)
    except (BackendError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    copy, fma, bare = bench.copy(), bench.fma_rate(), bench.bare_launch()
    columns = "product rows MB us of_copy gpu_us gpu_of_copy of_FMA MLX_us MLX_/_ours bits_as_alone".split()
    head = "| " + " | ".join(c.replace("_", " ") for c in columns) + " |\n" + "|---" * len(columns) + "|"
    title = f"Matrix kernels, {bench.backend}{', smoke run' * bench.quick}; a copy runs at {copy / 1e12:.2f} TB/s"
    if fma and bare:
        title += f", {fma / 1e12:.1f}e12 FMA a second, a bare launch of a chain takes {bare * 1e6:.1f} us"
    print(f"{title}\n{head}", flush=True)
    lines: list[dict[str, Any]] = []
    for subject in SUBJECTS:
        if args.only and args.only not in subject.name:
            continue
        try:
            lines += bench.measure(subject, args.rows[:2] if bench.quick else args.rows, copy, fma)
        except Exception as error:
            lines.append({"subject": subject.name, "rows": 0, "bytes": 0, "error": failure(error)})
        mx.clear_cache()
    facts = {
        "platform": platform_facts(),
        "backend": bench.backend,
        "quick": bench.quick,
        "copy_tb_s": copy / 1e12,
        "fma_s": fma,
        "bare_s": bare,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    name = "kernels_quick" if bench.quick else "kernels"
    (args.out / f"{name}.md").write_text("\n".join([title, "", head, *map(row_text, lines)]) + "\n", encoding="utf-8")
    (args.out / f"{name}.json").write_text(json.dumps({**facts, "lines": lines}, indent=1) + "\n", encoding="utf-8")
    if any("of_copy" in one for one in lines):
        (args.out / f"{name}.svg").write_text(plot({**facts, "lines": lines}), encoding="utf-8")
    return int(any("error" in line or not line["equal"] for line in lines))


def plot(found: dict[str, Any]) -> str:
    """The larger products' share of a copy's bandwidth, a launch in a chain, ours and MLX's."""
    lines = [one for one in found["lines"] if "of_copy" in one]
    large = {one["subject"] for one in lines if one["bytes"] > LARGE} or {one["subject"] for one in lines}
    shares: dict[str, list[list[tuple[float, float]]]] = {}
    for one in (one for one in lines if one["subject"] in large):
        ours, theirs = shares.setdefault(one["subject"], [[], []])
        ours.append((one["rows"], one["of_copy"]))
        if one.get("mlx_over_ours"):
            theirs.append((one["rows"], one["of_copy"] / one["mlx_over_ours"]))
    what = "large matrices of the published sizes, random weights"
    title = f"{what}; {found['backend']}; solid: ours, dashed: MLX's own product"
    return line_chart(title, "rows of a launch", "share of a copy's bandwidth", shares)


if __name__ == "__main__":
    sys.exit(main())
