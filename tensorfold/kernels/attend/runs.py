"""What both kernels of attention read: packed rows by place, turned pairs, their shapes. Knows no order of sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

WIDTHS = (64, 128, 256, 512)  # of a head: SIMD groups share them evenly, and 32 KiB hold what meets of them
RUNS = ("window", "window_new", "window_places", "packed", "packed_new", "packed_places")
NAMES = ("q", "table", *RUNS, "sink", "scale", "sizes")
SCORED = ("q", "table", *RUNS, "scale", "sizes")
VALUED = ("scores", "table", *RUNS, "sink", "sizes")
BLOCK = 64  # columns
ALIGNMENT = {"window": 16, "window_new": 16, "packed": 16, "packed_new": 16}


class Shape(NamedTuple):
    """Elements of a head that are turned, and whether rows begin at multiples of 16 bytes."""

    turned: int
    wide: bool


def columns(window: int, compressed: int) -> int:
    """C, the columns of scores of so many places: whole blocks."""
    return -(-(window + compressed) // BLOCK) * BLOCK


def columns_of(runs: Sequence[Any]) -> int:
    """C of these runs."""
    return columns(runs[2].shape[1], runs[5].shape[1])


def checked(kernel: str, rows: int, d: int, table: Any, runs: Sequence[Any], sizes: Any) -> Shape:
    """Shapes of `rows` rows of heads of d elements: table float32 [R, RD / 2, 2], window rows [N and M, D + D / 32] and
    compressed rows [L and P, D / 2 + D / 16] uint8, places int32 [R, W] and [R, K], sizes int32 [5].

    K = 0 in `sizes` leaves the compressed rows out, whatever their places. Raises ValueError where they do not fit.
    """
    window, window_new, window_places, packed, packed_new, packed_places = runs
    if d not in WIDTHS:
        raise ValueError(f"{kernel}: heads of {d} elements, expected {', '.join(map(str, WIDTHS))}")
    near, far, turned = d + d // 32, d // 2 + d // 16, 2 * table.shape[1]
    fits = window.shape[1] == window_new.shape[1] == near and packed.shape[1] == packed_new.shape[1] == far
    angles = tuple(table.shape) == (rows, turned // 2, 2) and turned <= d
    lists = window_places.shape[0] == packed_places.shape[0] == rows and tuple(sizes.shape) == (5,)
    if not fits or not angles or not lists:
        named = zip(RUNS, runs)
        raise ValueError(
            f"{kernel}: table {tuple(table.shape)}, sizes {tuple(sizes.shape)}, "
            f"{', '.join(f'{name} {tuple(a.shape)}' for name, a in named)} do not fit {rows} rows of {d} elements"
        )
    return Shape(turned, d % 512 == 0)


def heads_together(most: int, heads: int) -> int:
    """Heads of a threadgroup: the largest divisor of `heads` up to `most`."""
    return next(n for n in range(min(most, heads), 0, -1) if heads % n == 0)
