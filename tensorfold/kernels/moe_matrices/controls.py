"""Mistakes planted in the launches of both parts, which the contract must see. Knows their text alone."""

from __future__ import annotations

from tensorfold.kernels.kernel import Control

_HOST = ("host",)

# what the kernels add to their parts: who does what; mistakes inside a part are planted where it stands alone
BOTH = (
    Control("every row's threadgroups take the first share", "row * (threadgroups_per_grid.x - own) + at", "at"),
    Control("exchange too small", "red[SW8 > 1 ? SW8 *", "red[SW8 > 1 ? ", backends=_HOST),
    Control("pairs of the first pick alone", "pair = row * uint(PICKS) + at", "pair = row * uint(PICKS) + 0u * at"),
    Control("a pair forgotten", "pairs = rows * uint(PICKS)", "pairs = rows * uint(PICKS) - 1u"),
    Control("running sums in another order", "simd % uint(SW) * uint(LK) + lane % uint(LK)",
            "simd % uint(SW) + lane % uint(LK) * uint(SW)", file="shared_tile.h"),
)  # fmt: skip
UP = (
    Control("scales of the shared w1", "third ? s3 : s1", "s1"),
    Control("shared tiles counted from the first", "third ? tile - tiles8 : tile", "tile"),
    Control("gate and up swapped", "matrix == 0u ? gate : up", "matrix == 0u ? up : gate"),
    Control("w1 read for w3", "matrix = at / tiles % matrices", "matrix = at / tiles % 1u"),
)
DOWN = (
    Control("two pairs share an input", "share = 1u, matrix", "share = 2u, matrix"),
    Control("the routed x for the shared", "w2, s2, shared_x, shared_y", "w2, s2, x, shared_y", backends=_HOST),
    Control("first shared tile twice", "turn, task % tiles8", "turn, task % tiles8 / 2u * 2u"),
)
