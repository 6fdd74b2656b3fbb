"""Matrix kernels against the memory's speed: time, bytes and share of a copy, beside MLX's own operations.

Each number is a median over runs of a compiled graph whose launches wait for one another; weights rotate through more
than the caches hold. Ours wait through an input that is not read; MLX's through a small addition to x, whose own chain
is measured and taken off. The copy is element-wise launches over 1 GiB, both directions counted. See `kernel_cases.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mlx.core as mx

from benchmarks.common import ROOT, numbers, platform_facts
from benchmarks.kernel_cases import SUBJECTS, Arrays, Subject
from tensorfold.kernels import Kernel, get
from tensorfold.kernels.launch import BackendError, launcher

DISTINCT = 600 << 20  # bytes of weights in rotation


def pick_backend() -> str:
    """The GPU's, or the host's emulator for a smoke run."""
    return "cuda" if mx.cuda.is_available() else "metal" if mx.metal.is_available() else "host"


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Median time of a run that ends with evaluated arrays, after two that do not count."""
    found = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        mx.eval(run())
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

    def ours(self, subject: Subject, copies: list[Arrays], rows: int) -> tuple[float, bool]:
        """Seconds a launch, and whether the first row has the bits it has alone."""
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
        return seconds(self._compiled(run), self.repeats) / count, equal

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
        return max(seconds(whole, self.repeats) - seconds(links, self.repeats), 0.0) / count

    def measure(self, subject: Subject, rows_list: list[int], copy: float) -> list[dict[str, Any]]:
        """All row counts of a subject; what fails becomes a line of its own."""
        copies = [subject.make(self.quick)]
        nbytes, found = subject.nbytes(copies[0]), []
        copies += [subject.make(self.quick) for _ in range(1 if self.quick else DISTINCT // nbytes)]
        mx.eval(copies)
        for rows in rows_list:
            nbytes = subject.read(copies[0], rows) if subject.read else nbytes
            line: dict[str, Any] = {"subject": subject.name, "kernel": subject.kernel, "rows": rows, "bytes": nbytes}
            try:
                took, equal = self.ours(subject, copies, rows)
                speed = nbytes / took
                line |= {"us": took * 1e6, "tb_s": speed / 1e12, "of_copy": speed / copy, "equal": equal}
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
    names = (("us", ".1f"), ("tb_s", ".2f"), ("of_copy", ".0%"), ("mlx_us", ".1f"), ("mlx_over_ours", ".2f"))
    cells = [format(line[n], f) if line.get(n) else "" for n, f in names]
    last = line.get("error") or ("yes" if line["equal"] else "NO")
    return f"| {line['subject']} | {line['rows']} | {line['bytes'] / 1e6:.1f} | " + " | ".join([*cells, last]) + " |"


def main() -> int:
    """Measure, print, write; 1 when a case failed or bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shapes: shows that it runs, measures nothing")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 6, 8, 16], help="row counts")
    parser.add_argument("--only", help="subjects whose name contains this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the two tables")
    args = parser.parse_args()
    bench = Bench(pick_backend(), args.quick)
    try:
        launcher(bench.backend)
    except (BackendError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    copy = bench.copy()
    head = "| product | rows | MB | us | TB/s | of copy | MLX us | MLX / ours | bits as alone |\n" + "|---" * 9 + "|"
    print(f"{bench.backend}: copy {copy / 1e12:.2f} TB/s\n{head}", flush=True)
    lines: list[dict[str, Any]] = []
    for subject in SUBJECTS:
        if args.only and args.only not in subject.name:
            continue
        try:
            lines += bench.measure(subject, args.rows[:2] if bench.quick else args.rows, copy)
        except Exception as error:
            lines.append({"subject": subject.name, "rows": 0, "bytes": 0, "error": failure(error)})
        mx.clear_cache()
    facts = {"platform": platform_facts(), "backend": bench.backend, "quick": bench.quick, "copy_tb_s": copy / 1e12}
    args.out.mkdir(parents=True, exist_ok=True)
    name = "kernels_quick" if bench.quick else "kernels"
    title = f"Matrix kernels, {bench.backend}{', smoke run' * bench.quick}; a copy runs at {copy / 1e12:.2f} TB/s"
    (args.out / f"{name}.md").write_text("\n".join([title, "", head, *map(row_text, lines)]) + "\n", encoding="utf-8")
    (args.out / f"{name}.json").write_text(json.dumps({**facts, "lines": lines}, indent=1) + "\n", encoding="utf-8")
    return int(any("error" in line or not line["equal"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
