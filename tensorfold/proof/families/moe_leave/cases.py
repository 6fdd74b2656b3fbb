"""moe_leave and moe_leave_dots: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.families.hc_post.cases import doubly_normal, hc_post, with_fn
from tensorfold.proof.families.moe_join.cases import moe_join
from tensorfold.proof.numerics import inputs
from tensorfold.proof.proof import Case


def moe_leave() -> list[Case]:
    """Each case of hc_post behind one expert alone; each of moe_join beside streams, or with nothing added to it."""
    found = []
    for case in hc_post():
        y, *streams = case.arrays
        alone = np.stack([y, np.zeros_like(y)], 1)
        found.append(Case(f"{case.name} of one", (alone, np.zeros_like(y), *streams), {}, case.rows, case.bounded))
    for seed, case in enumerate(moe_join()):
        routed, shared = case.arrays
        draw = inputs.Draw(seed)
        rows, d = shared.shape
        post, comb = draw.uniform(0.0, 2.0, rows, 4), doubly_normal(draw, rows)
        if "cancel" in case.name or case.name == "tiny":
            # the sum is the output: nothing hides its order or its size
            post, comb = np.ones_like(post), np.zeros_like(comb)
        found.append(Case(case.name, (routed, shared, draw.bf16(rows, 4, d), post, comb), {}, case.rows, case.bounded))
    return found


def moe_leave_dots() -> list[Case]:
    """Those of moe_leave, but behind one expert alone few of the streams: hc_post_dots has the others."""
    few = ("cancelling of one", "cancelled by the output of one", "tiny of one")
    return with_fn([case for case in moe_leave() if " of one" not in case.name or case.name in few])


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "moe_leave": ("routed", "shared", "x", "post", "comb"),
    "moe_leave_dots": ("routed", "shared", "x", "post", "comb"),
}
