"""moe_up and moe_down: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import as_planes
from tensorfold.proof.families.experts.cases import experts_down, experts_up, far_shard, make, tall
from tensorfold.proof.families.experts.reference import planes_of
from tensorfold.proof.families.matvec.cases import activations, cancelling, matrix
from tensorfold.proof.numerics.exact import store_bf16
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case, Far

# of the gathered experts' cases: rows, the narrowest loads, orders
_KEPT = ("rows", "codes at 4", "order")


def _beside(case: Case, paired: bool, width: int) -> Case:
    """The case with a shared expert of random codes, `width` rows (up) or columns (down) of its matrices."""
    x, *routed = case.arrays
    x = x if paired else planes_of(x)
    n, rows, draw = case.options["n"], len(x), Draw(width + case.options["n"])
    shared: list[Array]
    if paired:
        shared = [*matrix(draw, n, width), activations(draw, rows, width, True)]
    else:
        k = x.shape[-2] * 16
        shared = [*matrix(draw, width, k), *matrix(draw, width, k)]
    return replace(case, arrays=(x, *routed, *shared))


def _special(case: Case) -> Case:
    """NaN codes and scales 0 and 255 in the shared matrices."""
    x, *routed, w, s = case.arrays[:7]
    w, s = w.copy(), s.copy()
    w[5, 7], w[-1, -1], w[:, 40] = 0x7F, 0xFF, np.arange(len(w))
    s[0, 1], s[-1, -1], s[0, 3] = 0, 255, 41
    rest = case.arrays[7:]
    return replace(case, name="special shared codes", arrays=(x, *routed, w, s, *rest), rows=False)


def _shared_order(name: str, paired: bool, k: int, n: int, whole_blocks: bool) -> Case:
    """Random experts beside a shared expert whose orders show."""
    rows, draw = 5, Draw(k + n)
    base = make(name, paired, 64 if paired else k, n, 2, rows, 3, planes=not paired)
    x, arrays = cancelling(draw, rows, k, (n,) if paired else (n, n), whole_blocks)
    if paired:
        return replace(base, arrays=(*base.arrays, *arrays, store_bf16(x)))
    return replace(base, arrays=(as_planes(x), *base.arrays[1:], *arrays))


def _cases(paired: bool, found: list[Case], widths: dict[str, int]) -> list[Case]:
    kept = [c for c in found if c.name.startswith(_KEPT) or c.name in widths]
    made = [_beside(c, paired, widths.get(c.name, 160 if paired else 42)) for c in kept]
    # rows run at shifted addresses too
    narrow = {**made[0].options, "shared_width": 8}
    return [replace(made[0], options=narrow), *made[1:], _special(made[2])]


def moe_up() -> list[Case]:
    """What the parts' own cases do not show together, at a small and at the real hidden size (with few rows)."""
    sizes = {"K128 N64": 64, "K5120 N20": 20}
    found = _cases(False, experts_up(), sizes)
    return [
        *found,
        _shared_order("shared order in a chunk", False, 512, 70, False),
        _shared_order("shared order of blocks", False, 1024, 36, True),
    ]


def moe_down() -> list[Case]:
    """What the parts' own cases do not show together, at a small and at the real inner size (with few rows)."""
    sizes = {"K64 N128": 64, "K2304 N20": 2304, "order of blocks": 256}
    found = _cases(True, experts_down(), sizes)
    return [
        *found,
        _shared_order("shared order in a chunk", True, 512, 70, False),
        _shared_order("shared order of blocks", True, 1024, 36, True),
    ]


def far_experts(paired: bool) -> list[Far]:
    """An expert beyond 4 GiB of its shard."""
    return [far_shard(_beside(make("far experts", paired, 128, 64, 3, 4, 5), paired, 160 if paired else 64))]


def tall_beside(paired: bool) -> list[Case]:
    """Real numbers of rows of every matrix."""
    return [_beside(case, paired, 512 if paired else 2304) for case in tall(paired)]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "moe_up": ("x", "ids"),
    "moe_down": ("x", "ids", "shared_x"),
}
FAR_CASES = {"moe_up": partial(far_experts, False), "moe_down": partial(far_experts, True)}
ROWS_SEE_ALL = ("moe_up", "moe_down")  # a row looks at the choices of all
ONCE = {"moe_up": partial(tall_beside, False), "moe_down": partial(tall_beside, True)}
