"""experts_up and experts_down: geometries, all of equal bits, and which a launch uses. Knows no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, TemplateValue, dtype_of

BLOCK = 32
# WN SIMD groups, TN rows of a matrix a lane, PF blocks loaded ahead, RG pairs that share a read of a weight
GEOMETRIES: tuple[Geometry, ...] = (
    {"WN": 4, "TN": 4, "PF": 1, "RG": 1},
    {"WN": 8, "TN": 2, "PF": 3, "RG": 1},
    {"WN": 4, "TN": 4, "PF": 3, "RG": 1},
    {"WN": 2, "TN": 1, "PF": 1, "RG": 2},
)


def lanes_of(k: int) -> int:
    """Running sums of a row: the largest power of two that divides its blocks, 32 at most."""
    blocks = k // BLOCK
    return min(32, blocks & -blocks)


def tiling(
    name: str, arrays: Sequence[Any], geometry: Geometry, matrices: int, paired: bool, n: int, width: int
) -> tuple[dict[str, TemplateValue], int, tuple[int, int]]:
    """(template but for picks, grid's x, (R, picks)); ValueError where shapes do not fit."""
    x, ids, _, place, origin = arrays
    planes = dtype_of(x) == mx.float32
    k = x.shape[-2] * 16 if planes and len(x.shape) > 2 else x.shape[-1]
    lead = tuple(ids.shape) if paired else tuple(ids.shape[:1])
    wanted = (*lead, 4, k // 16, 4) if planes else (*lead, k)
    if len(ids.shape) != 2 or tuple(x.shape) != wanted or k % BLOCK or k < BLOCK:
        raise ValueError(
            f"{name}: x {tuple(x.shape)} and ids {tuple(ids.shape)} do not fit: expected ids [R, picks] and x "
            f"[{'R, picks' if paired else 'R'}, K] bfloat16, or [.., 4, K / 16, 4] float32, K a multiple of {BLOCK}"
        )
    if len(place.shape) != 3 or tuple(place.shape[1:]) != (matrices, 2) or tuple(origin.shape) != (1,):
        raise ValueError(
            f"{name}: place {tuple(place.shape)} and origin {tuple(origin.shape)}, expected [E, {matrices}, 2] and [1]"
        )
    if width not in (4, 8, 16) or n < 1:
        raise ValueError(f"{name}: rows n {n} and load width {width}, expected n >= 1 and a width of 4, 8 or 16 bytes")
    lk = lanes_of(k)
    ahead = geometry["PF"] if k // BLOCK // lk % geometry["PF"] == 0 else 1
    tile = geometry["WN"] * (32 // lk) * geometry["TN"]
    template: dict[str, TemplateValue] = {"X": dtype_of(x), "K": k, "N": n}
    template |= {"LK": lk, "W": width, "WN": geometry["WN"], "TN": geometry["TN"], "PF": ahead, "RG": geometry["RG"]}
    return template, -(-n // tile) * matrices * 32 * geometry["WN"], (ids.shape[0], ids.shape[1])


def choose_up(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """Four rows of a matrix a lane: the rows of a block are read once for all four."""
    return 0


def choose_down(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """One row: blocks loaded ahead and fewer rows a lane, as its pairs alone would leave too few threadgroups."""
    return 1 if arrays[1].shape[0] == 1 else 0
