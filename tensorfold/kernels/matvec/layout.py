"""How rows and sums are shared out, from shapes alone: what the plans of matrix times few rows have in common.

Knows no code and no backend. See `tile.h` for the terms: VL running sums, LK lanes, R rows of x at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.kernels.exact import F32, f32, fma, tree_sum
from tensorfold.kernels.kernel import Geometry


def running_sums(k: int, chunk: int) -> int:
    """VL: the largest power of two that divides K / chunk, at most 32; from K alone, so it is part of the order."""
    chunks = k // chunk
    return min(32, chunks & -chunks)


def rows_at_once(rows: int) -> int:
    """R: few numbers, so that few programs are built, each at least half used by the last group of rows."""
    return 1 if rows == 1 else 4 if rows <= 4 else 6 if rows <= 6 or 9 <= rows <= 12 else 8


def tiling(
    rows: int, k: int, chunk: int, counts: Sequence[int], groups: int, geometry: Geometry
) -> tuple[dict[str, int], tuple[int, int, int], tuple[int, int, int]]:
    """(template from R on, grid, threadgroup) for matrices of `counts` rows, each `groups` times, on `rows` rows of x.

    A geometry is cut to what the shape allows: LK to VL, TN to the smallest matrix, PF to a divisor of the chunks.
    """
    vl = running_sums(k, chunk)
    lk = min(geometry["LK"], vl)
    sw = vl // lk
    tn = min(geometry["TN"], 1 << (min(counts).bit_length() - 1))
    steps = k // chunk // vl
    pf = max(p for p in range(1, geometry["PF"] + 1) if steps % p == 0)
    r = rows_at_once(rows)
    tile = geometry["WN"] * (32 // lk) * tn
    tiles = sum(-(-n // tile) for n in counts) * groups
    high = -(-rows // r)
    threads = 32 * sw * geometry["WN"]
    template = {
        "R": r, "LK": lk, "SW": sw, "WN": geometry["WN"], "TN": tn, "PF": pf, "DB": geometry["DB"], "W": geometry["W"],
    }  # fmt: skip
    # idle threadgroups beyond the tiles tell a launch how many rows the last group lacks
    return template, ((tiles + high * r - rows) * threads, high, 1), (threads, 1, 1)


def blocked(w: F32, scales: F32, x: F32, chunk: int) -> F32:
    """w [N, K], scales [N, K / chunk], x [R, K] -> [R, N]: products of a chunk in a chain, scaled sums, the tree."""
    n, k = w.shape
    rows, chunks, vl = len(x), k // chunk, running_sums(k, chunk)
    a, b = w.reshape(1, n, chunks, chunk), x.reshape(rows, 1, chunks, chunk)
    with np.errstate(all="ignore"):
        p = (a[..., 0] * b[..., 0]).astype(f32)
    for i in range(1, chunk):
        p = fma(a[..., i], b[..., i], p)
    acc = np.zeros((rows, n, vl), f32)
    for c in range(0, chunks, vl):
        acc = fma(p[:, :, c : c + vl], scales[None, :, c : c + vl], acc)
    return tree_sum(acc)


def chained(w: F32, x: F32, chunk: int) -> F32:
    """w [N, K], x [R, K] -> [R, N]: one chain of fma a running sum, the tree."""
    n, k = w.shape
    rows, vl = len(x), running_sums(k, chunk)
    a, b = w.reshape(1, n, -1, vl, chunk), x.reshape(rows, 1, -1, vl, chunk)
    acc = np.zeros((rows, n, vl), f32)
    for t in range(a.shape[2]):
        for i in range(chunk):
            acc = fma(a[:, :, t, :, i], b[:, :, t, :, i], acc)
    return tree_sum(acc)
