"""moe_up and moe_down: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_HOST = ("host",)


# what the kernels add to their parts: who does what; mistakes inside a part are planted where it stands alone
BOTH = (
    Mistake("every row's threadgroups take the first share", "row * (threadgroups_per_grid.x - own) + at", "at"),
    Mistake("exchange too small", "red[SW8 > 1 ? SW8 *", "red[SW8 > 1 ? ", backends=_HOST),
    Mistake("pairs of the first pick alone", "pair = row * uint(PICKS) + at", "pair = row * uint(PICKS) + 0u * at"),
    Mistake("a pair forgotten", "pairs = rows * uint(PICKS)", "pairs = rows * uint(PICKS) - 1u"),
    Mistake("running sums in another order", "simd % uint(SW) * uint(LK) + lane % uint(LK)",
            "simd % uint(SW) + lane % uint(LK) * uint(SW)", file="shared_tile.h"),
)  # fmt: skip
UP = (
    Mistake("scales of the shared w1", "third ? s3 : s1", "s1"),
    Mistake("shared tiles counted from the first", "third ? tile - tiles8 : tile", "tile"),
    Mistake("gate and up swapped", "matrix == 0u ? gate : up", "matrix == 0u ? up : gate"),
    Mistake("w1 read for w3", "matrix = at / tiles % matrices", "matrix = at / tiles % 1u"),
)
DOWN = (
    Mistake("two pairs share an input", "share = 1u, matrix", "share = 2u, matrix"),
    Mistake("the routed x for the shared", "w2, s2, shared_x, shared_y", "w2, s2, x, shared_y", backends=_HOST),
    Mistake("first shared tile twice", "turn, task % tiles8", "turn, task % tiles8 / 2u * 2u"),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "moe_up": BOTH + UP,
    "moe_down": BOTH + DOWN,
}
