"""Gathered experts for `kernel_cases.py`: 6 of 384 at real size, read where they lie. Knows no clock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.small import constant

Arrays = list[mx.array]
EXPERTS, PICKS, ROW, MOST_ROWS = 384, 6, 16384, 64
_shard: dict[tuple[int, int, int, int], tuple[Arrays, list[tuple[mx.array, mx.array]]]] = {}


def _bytes(count: int, low: int, high: int, seed: int) -> np.ndarray:
    """So many bytes low .. high - 1, a drawn run repeated: what memory reads does not depend on values."""
    return np.resize(np.random.default_rng(seed).integers(low, high, 1 << 24, dtype=np.uint8), count)


def _experts(n: int, k: int, matrices: int, experts: int) -> tuple[Arrays, list[tuple[mx.array, mx.array]]]:
    """[shard, place, origin] as the kernels take them, (codes, scales) a matrix as MLX does; the last drawn is kept.

    All codes of a matrix, matrix by matrix, then all scales: offsets go beyond 2^32 at real size.
    """
    key = (n, k, matrices, experts)
    if key not in _shard:
        _shard.clear()
        codes, scales = n * k // 2, n * k // 32
        drawn = [_bytes(matrices * experts * codes, 0, 256, 1), _bytes(matrices * experts * scales, 112, 124, 2)]
        place = np.zeros((experts, matrices, 2), np.uint64)
        for m in range(matrices):
            place[:, m, 0] = (m * experts + np.arange(experts)) * codes
            place[:, m, 1] = drawn[0].size + (m * experts + np.arange(experts)) * scales
        shard = mx.array(np.concatenate(drawn).reshape(-1, ROW))
        pairs, ends = [], experts * codes // ROW
        for m in range(matrices):
            w = shard[m * ends : (m + 1) * ends].view(mx.uint32).reshape(experts, n, -1)
            start, many = matrices * ends + m * (experts * scales // ROW), experts * scales // ROW
            pairs.append((w, shard[start : start + many].reshape(experts, n, -1)))
        _shard[key] = [shard, mx.array(place), constant(np.uint64, 0)], pairs
        mx.eval(_shard[key])
    return _shard[key]


def _rows(paired: bool, k: int, rows: int) -> mx.array:
    """The same random rows for every count, bfloat16."""
    shape = (MOST_ROWS, PICKS, k) if paired else (MOST_ROWS, k)
    return mx.random.normal(shape, key=mx.random.key(k)).astype(mx.bfloat16)[:rows]


def arguments(paired: bool, n: int, k: int, planes: bool) -> dict[str, Any]:
    """What a Subject of experts_up (w1 and w3) or, `paired`, experts_down is made of, beside mxfp4 gather_qmm.

    A copy is another choice of experts in one shard. x as bfloat16 rows or as float planes.
    """
    matrices, drawn = (1 if paired else 2), count()

    def make(small: bool) -> Arrays:
        experts, width = (16, 128) if small else (EXPERTS, k)
        chosen = np.random.default_rng(next(drawn)).permuted(np.tile(np.arange(experts), (MOST_ROWS, 1)), axis=1)[
            :, :PICKS
        ]
        ids = mx.array(np.sort(chosen, -1).astype(np.int32))
        return [*_experts(n, width, matrices, experts)[0], ids]

    def width_of(weights: Arrays) -> int:
        # the bytes of a code and a 16th of it for scales
        return weights[0].size * 32 // 17 // (n * weights[1].shape[0] * matrices)

    def inputs(weights: Arrays, rows: int) -> Arrays:
        shard, place, origin, ids = weights
        x = _rows(paired, width_of(weights), rows)
        if planes:
            x = x.astype(mx.float32).reshape(*x.shape[:-1], -1, 4, 4).swapaxes(-3, -2)
        return [mx.contiguous(x), mx.contiguous(ids[:rows]), shard, place, origin]

    def read(weights: Arrays, rows: int) -> int:
        chosen = len(set(np.array(weights[3][:rows]).reshape(-1).tolist()))
        return chosen * (weights[0].nbytes // weights[1].shape[0])

    def rival(weights: Arrays, rows: int) -> tuple[mx.array, Callable[[mx.array], Arrays]]:
        _, place, _, ids = weights
        k_now, chosen = width_of(weights), mx.contiguous(ids[:rows]).astype(mx.uint32)
        pairs = _experts(n, k_now, matrices, place.shape[0])[1]

        def run(x: mx.array) -> Arrays:
            how: dict[str, Any] = {"transpose": True, "group_size": 32, "bits": 4, "mode": "mxfp4"}
            wide = x.reshape(rows, -1, 1, k_now)
            return [mx.gather_qmm(wide, w, s, rhs_indices=chosen, **how).reshape(rows, -1) for w, s in pairs]

        return _rows(paired, k_now, rows).reshape(rows, -1), run

    name = f"experts {'w2' if paired else 'w1+w3'}, {'planes' if planes else 'bfloat16'}"
    kernel = "experts_down" if paired else "experts_up"
    return {
        "name": name, "kernel": kernel, "make": make, "inputs": inputs, "rival": rival, "options": {"n": n},
        "nbytes": lambda weights: read(weights, 1), "read": read,
    }  # fmt: skip


CASES = [arguments(paired, *size, planes) for paired, size in ((False, (2304, 5120)), (True, (5120, 2304)))
         for planes in (False, True)]  # fmt: skip
