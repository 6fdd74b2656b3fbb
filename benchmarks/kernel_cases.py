"""What `kernels.py` measures: real shapes, random weights; append a Subject to SUBJECTS to add one. Knows no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import mlx.core as mx

from benchmarks import expert_cases

Arrays = list[mx.array]
MOST_ROWS = expert_cases.MOST_ROWS


@dataclass(frozen=True)
class Subject:
    """A product: the kernel that computes it, its weights, its rows, and the same by MLX's own operation.

    `make(small)` draws one copy of the weights (small: for a smoke run), `nbytes` of which a launch reads, or
    `read(weights, rows)` where that grows with the rows;
    `inputs(weights, rows)` are the kernel's arrays for so many rows;
    `products(weights)` counts the products of one row, where a row meets every weight;
    `rival(weights, rows)` gives MLX's input x [rows, K] and a function of x, or None where MLX has no such operation.
    """

    name: str
    kernel: str
    make: Callable[[bool], Arrays]
    inputs: Callable[[Arrays, int], Arrays]
    rival: Callable[[Arrays, int], tuple[mx.array, Callable[[mx.array], Arrays]] | None]
    options: Mapping[str, Any] = field(default_factory=dict)
    nbytes: Callable[[Arrays], int] = lambda weights: sum(w.nbytes for w in weights)
    read: Callable[[Arrays, int], int] | None = None
    products: Callable[[Arrays], int] | None = None


def _codes(n: int, k: int) -> mx.array:
    """Finite e4m3 codes."""
    codes = mx.random.randint(0, 256, (n, k)).astype(mx.uint8)
    return mx.where((codes & 127) == 127, codes ^ 1, codes)


@cache
def _x(rows: int, k: int) -> mx.array:
    """bfloat16 [rows, k]: the same first rows for every count."""
    x = mx.contiguous(mx.random.normal((MOST_ROWS, k), key=mx.random.key(k)).astype(mx.bfloat16)[:rows])
    mx.eval(x)
    return x


@cache
def _planes(rows: int, k: int) -> mx.array:
    """The same as float planes: element 16 c + 4 j + e of a row at [j, c, e]."""
    x = mx.contiguous(_x(rows, k).astype(mx.float32).reshape(rows, -1, 4, 4).swapaxes(1, 2))
    mx.eval(x)
    return x


def fp8(name: str, ns: Sequence[int], k: int, groups: int = 1) -> Subject:
    """FP8 matrices that share x (or groups of one matrix, with bfloat16 rows) beside mxfp8 quantized_matmul."""
    kernel = {1: "matvec_fp8", 2: "matvec_fp8_pair"}[len(ns)]

    def make(small: bool) -> Arrays:
        found: Arrays = []
        for n in ns:
            n, width = (64 * groups, 512) if small else (n, k)
            scales = mx.random.randint(110, 125, (n // 32, width // 32)).astype(mx.uint8)
            found += [_codes(n, width), scales]
        return found

    def inputs(weights: Arrays, rows: int) -> Arrays:
        width = weights[0].shape[1]
        return [*weights, _x(rows, groups * width) if groups > 1 else _planes(rows, width)]

    def rival(weights: Arrays, rows: int) -> tuple[mx.array, Callable[[mx.array], Arrays]] | None:
        if groups > 1:
            return None
        pairs = [
            (w.view(mx.uint32), mx.contiguous(mx.repeat(s, 32, axis=0))) for w, s in zip(weights[0::2], weights[1::2])
        ]
        mx.eval(pairs)

        def run(x: mx.array) -> Arrays:
            how: dict[str, Any] = {"transpose": True, "group_size": 32, "bits": 8, "mode": "mxfp8"}
            return [mx.quantized_matmul(x, w, s, **how) for w, s in pairs]

        return _x(rows, weights[0].shape[1]), run

    return Subject(name, kernel, make, inputs, rival, products=lambda weights: sum(w.size for w in weights[0::2]))


def dense(name: str, n: int, k: int) -> Subject:
    """A bfloat16 matrix with float32 results beside MLX's bfloat16 matmul."""

    def make(small: bool) -> Arrays:
        return [mx.random.normal((256, 512) if small else (n, k), dtype=mx.bfloat16)]

    def rival(weights: Arrays, rows: int) -> tuple[mx.array, Callable[[mx.array], Arrays]]:
        return _x(rows, weights[0].shape[1]), lambda x: [x @ weights[0].T]

    def inputs(weights: Arrays, rows: int) -> Arrays:
        return [*weights, _x(rows, weights[0].shape[1])]

    products = {"products": lambda weights: weights[0].size}
    return Subject(name, "matvec_bf16", make, inputs, rival, {"out": "float32"}, **products)


SUBJECTS = [
    fp8("wq_b", [32768], 1280),
    fp8("wo_b", [5120], 8192),
    fp8("wq_a+wkv", [1280, 512], 5120),
    fp8("shared w1+w3", [2304, 2304], 5120),
    fp8("shared w2", [5120], 2304),
    fp8("Engram wkv", [25600], 6144),
    fp8("wo_a, 8 groups", [8192], 4096, groups=8),
    dense("router", 384, 5120),
    dense("head", 129280, 5120),
    *(Subject(**case) for case in expert_cases.CASES),
]
