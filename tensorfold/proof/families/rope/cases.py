"""rope: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.far import apart
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case, Far


def turns(count: int, dims: int) -> Array:
    """Cosine and sine of positions below `count`, float32 [count, dims / 2, 2]; the network has tables of its own."""
    angles = np.outer(np.arange(count), 10000.0 ** (-np.arange(0, dims, 2) / dims))
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(f32)


def rope() -> list[Case]:
    """Head shapes of every config, both directions; positions out of order and repeated; extremes."""
    found = []
    for heads, d, turned in ((8, 64, 16), (1, 64, 64), (64, 512, 64), (1, 512, 64), (32, 128, 64), (3, 48, 32)):
        draw = inputs.Draw(heads * d)
        rows = 16 if d in (48, 128) else 2
        table = turns(40, turned)
        positions = draw.integers(0, 40, rows)
        for inverse in (False, True):
            found.append(
                Case(
                    f"{heads}x{d}/{turned}{' inverse' if inverse else ''}",
                    (draw.bf16(rows, heads, d), table, positions),
                    {"inverse": inverse},
                    rows=d == 48 or (d == 128 and not inverse),
                )
            )
    wild = inputs.extremes_bf16(64).reshape(16, 1, 64)
    found.append(Case("extreme", (wild, turns(16, 64), np.arange(16, dtype=np.int32))))
    return found


def far_positions() -> list[Far]:
    """Positions behind 2^32 elements of the table."""
    case = rope()[0]
    x, table, positions = case.arrays
    held = apart(table, 2**30)
    return [Far(case, (x, held, held.moved(positions)), None)]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "rope": ("x", "positions"),
}
FAR_CASES = {"rope": far_positions}
