"""matvec_*: geometries, all of equal bits, and which a launch uses. Knows no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorfold.kernels.kernel import Geometry

BLOCK, CHUNK = 32, 16


DENSE_CHUNK = 8


QUANTISED: tuple[Geometry, ...] = tuple(
    dict(zip(("LK", "TN", "PF", "DB"), values))
    for values in ((16, 4, 1, 0), (8, 4, 1, 0), (16, 8, 1, 0), (16, 2, 1, 0))
)


def choose_quantised(backend: str, arrays: Sequence[Any], *, width: int = 16) -> int:
    """What the table of matvec_fp8 says, with the lanes and rows of w that a lane has; else the first."""
    wanted = FP8[choose_fp8(backend, arrays)]
    same = (i for i, g in enumerate(QUANTISED) if all(g[key] == wanted[key] for key in g))
    return next(same, 0)


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


def _geometry(lk: int, wn: int, tn: int, pf: int = 1, db: int = 0, w: int = 16) -> dict[str, int]:
    return {"LK": lk, "WN": wn, "TN": tn, "PF": pf, "DB": db, "W": w}


NARROW = _geometry(16, 2, 2, w=8)  # for matrices at addresses that only 8 divides
FP8 = (
    NARROW,
    _geometry(8, 2, 4),
    _geometry(16, 4, 4),
    _geometry(16, 4, 8),
    _geometry(16, 2, 4, 2, 1),
    _geometry(16, 2, 4),
    _geometry(16, 2, 2, 5),
    _geometry(16, 2, 2),
    _geometry(16, 2, 8),
    _geometry(8, 1, 4),
    _geometry(8, 1, 2, 5),
)
_AT = {tuple(g.values())[:5]: i for i, g in enumerate(FP8) if i}


# cuda, by (K, rows of all matrices; 0 for any other) and rows of x at once: LK, WN, TN, PF, DB
_SMALL = (16, 2, 2, 5, 0)
_WIDE, _PROMPT = (16, 2, 8, 1, 0), 16  # more rows of x than a decode launch has
_CUDA_FP8 = {
    (1280, 0): {1: (8, 2, 4, 1, 0), 4: (16, 4, 4, 1, 0), 6: (16, 4, 8, 1, 0), 8: (16, 4, 8, 1, 0)},
    (1280, 36864): {1: (8, 2, 4, 1, 0), 4: (16, 4, 4, 1, 0), 6: (16, 4, 4, 1, 0), 8: (16, 4, 4, 1, 0)},
    (8192, 0): {1: (16, 2, 4, 2, 1), 4: (16, 2, 2, 1, 0), 6: (8, 1, 4, 1, 0), 8: (16, 2, 8, 1, 0)},
    (6144, 0): {1: (16, 2, 4, 1, 0), 4: (16, 2, 4, 1, 0), 6: (8, 1, 4, 1, 0), 8: (16, 2, 8, 1, 0)},
    (5120, 4608): {1: _SMALL, 4: (16, 2, 2, 1, 0), 6: (8, 1, 4, 1, 0), 8: (16, 2, 8, 1, 0)},
    (5120, 0): {1: _SMALL, 4: (8, 1, 2, 5, 0), 6: (8, 1, 2, 5, 0), 8: (8, 1, 2, 5, 0)},
    (2304, 0): {1: _SMALL, 4: (16, 4, 4, 1, 0), 6: (16, 4, 4, 1, 0), 8: (16, 4, 8, 1, 0)},
    (0, 0): {1: (16, 2, 4, 1, 0), 4: (16, 2, 4, 1, 0), 6: (8, 1, 4, 1, 0), 8: (16, 2, 8, 1, 0)},
}  # fmt: skip


def choose_fp8(backend: str, arrays: Sequence[Any], *, out: str = "bfloat16", width: int = 16) -> int:
    """The geometry for these matrices and rows."""
    if width < 16:
        return 0
    rows, (_, k) = rows_at_once(arrays[-1].shape[0]), arrays[0].shape
    if backend != "cuda":
        return _AT[(16, 2, 4, 1, 0) if rows > 1 else (16, 2, 2, 1, 0)]
    if arrays[-1].shape[0] > _PROMPT and k not in (1280, 2304):
        return _AT[_WIDE]
    total = sum(w.shape[0] for w in arrays[:-1:2])
    found = next(t for key in ((k, total), (k, 0), (0, 0)) if (t := _CUDA_FP8.get(key)))
    return _AT[found[rows]]


BF16 = (
    NARROW,
    _geometry(32, 4, 2, 4),
    _geometry(16, 2, 4),
    _geometry(16, 2, 4, 2),
    _geometry(16, 2, 8, 2),
    _geometry(32, 1, 1, 5),
    _geometry(16, 1, 2, 2),
)
_AT_BF16 = {tuple(g.values())[:5]: i for i, g in enumerate(BF16) if i}
_MANY = 16384  # rows of w that fill a GPU with wide tiles
_BF16 = {1: (32, 4, 2, 4, 0), 4: (16, 2, 4, 1, 0), 6: (16, 2, 4, 2, 0), 8: (16, 2, 8, 2, 0)}


def choose_bf16(backend: str, arrays: Sequence[Any], *, out: str = "bfloat16", width: int = 16) -> int:
    """The geometry for this matrix and these rows."""
    w, x = arrays
    if width < 16:
        return 0
    rows = rows_at_once(x.shape[0])
    if w.shape[0] < _MANY:
        return _AT_BF16[(32, 4, 2, 4, 0)]
    if backend != "cuda":
        return _AT_BF16[(16, 2, 4, 1, 0)]
    return _AT_BF16[_BF16[rows]]
