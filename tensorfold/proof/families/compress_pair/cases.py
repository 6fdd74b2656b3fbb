"""compress_pair: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.far import apart
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case, Far


def _near_ties(d: int, rows: int) -> tuple[Array, Array, Array]:
    """Groups whose results lie at ties of bfloat16: the second value is what is left of a tie."""
    draw = inputs.Draw(d + rows)
    own = draw.normal(2 * rows, 2, d)
    c, g = own[0::2, 0].astype(np.float64), own[:, 1].reshape(rows, 2, d).astype(np.float64)
    w = 1 / (1 + np.exp(g[:, ::-1] - g))
    own[1::2, 0] = (inputs.bf16_ties(draw.normal(rows, d, scale=2.0)) - c * w[:, 0]) / w[:, 1]
    return draw.normal(2, 2, d), own, (2 + np.arange(2 * rows, dtype=np.int32)).reshape(rows, 2)


def compress_pair() -> list[Case]:
    """Every head size; groups that begin in an open pair or in the round; ties, extremes, far gates, infinities."""
    found = []
    for d, rows in ((64, 16), (512, 3)):
        draw = inputs.Draw(d)
        partner = np.stack([draw.integers(0, 3 + rows, rows), 3 + draw.integers(0, rows, rows)], 1)
        partner[0], partner[1] = (2, 3 + rows - 1), (3, 3)
        arrays = draw.normal(3, 2, d), draw.normal(rows, 2, d, scale=2.0), partner.astype(np.int32)
        found.append(Case(f"D{d}", arrays, rows=d == 64))
    found.append(Case("order", _near_ties(512, 24)))
    extreme = inputs.extremes_f32(96)
    each = np.array([(i, 15 - i) for i in range(16)], np.int32)
    calm, opened = inputs.Draw(2), np.zeros((1, 2, 96), f32)
    values = np.stack([extreme, calm.normal(16, 96)], 1)
    gates = np.stack([calm.normal(16, 96), extreme], 1)
    found.append(Case("extreme values", (opened, values, each + 1)))
    found.append(Case("extreme gates", (opened, gates, each + 1)))
    far = calm.normal(16, 2, 96)
    far[:, 1] = calm.uniform(-120, 120, 16, 96)
    found.append(Case("far gates", (opened, far, each + 1)))
    both = np.stack([extreme, extreme[::-1]], 1)
    found.append(Case("overflow", (opened, both, each + 1), bounded=False))
    return found


def far_pairs() -> list[Far]:
    """Places of this round's rows behind 2^32 elements."""
    case = compress_pair()[0]
    opened, own, partner = case.arrays
    held, slots = apart(own, 2**29), len(opened)
    return [Far(case, (opened, held, np.where(partner < slots, partner, slots + held.moved(partner - slots))))]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "compress_pair": ("partner",),
}
FAR_CASES = {"compress_pair": far_pairs}
