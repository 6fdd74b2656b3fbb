"""norm_rope_pack: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorfold.proof.families.rope.cases import turns
from tensorfold.proof.numerics import code_ties, inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


@dataclass(frozen=True)
class _Use:
    """Where a kind of row is made: heads (0: none), width, turned dims, normed."""

    kind: str
    heads: int
    d: int
    turned: int
    norm: bool
    rows: int = 2


_USES = (
    *(_Use("key", h, d, t, False) for h, d, t in ((4, 32, 16), (4, 64, 32))),
    _Use("key", 32, 128, 64, False, 1),
    *(_Use("key", 0, d, t, True) for d, t in ((32, 16), (64, 32), (128, 64))),
    *(_Use("compressed", 0, d, t, False) for d, t in ((64, 16), (64, 32), (512, 64))),
    *(_Use("window", 0, d, t, True) for d, t in ((64, 16), (64, 32), (512, 64))),
    _Use("key", 3, 96, 32, False, 16),
    _Use("key", 0, 96, 32, True),
    _Use("compressed", 0, 96, 96, False),
    _Use("window", 0, 352, 48, True, 16),
)


def norm_rope_pack() -> list[Case]:
    """Values where orders show; every use in every config, two with rows; extremes and any bits in every kind."""
    eps, found = np.array([1e-20], f32), []
    forms = {"window": code_ties.FP8, "compressed": code_ties.FP4_E4M3, "key": code_ties.FP4_E8M0}
    table, draw = turns(128, 32), inputs.Draw(90)
    for kind, form in forms.items():
        x = code_ties.pairs(91, 8, 64, form)
        arrays = x, x[0], code_ties.turning(92, x, form), eps
        found.append(Case(f"order of the turn, {kind}", arrays, {"kind": kind, "norm": False}))
        x, w = code_ties.normed(93, 128, 192, float(eps[0]), form)
        found.append(Case(f"order of the norm, {kind}", (x, w, table, eps), {"kind": kind}))
        x = np.concatenate([inputs.extremes_bf16(96), draw.any_bf16(32, 96)])
        for norm in (False, True):
            arrays = x, draw.any_bf16(96), table[: len(x)], eps
            found.append(Case(f"extreme {kind}{' normed' * norm}", arrays, {"kind": kind, "norm": norm}))
    for n, use in enumerate(_USES):
        draw = inputs.Draw(n + 70)
        shape = (use.rows, use.heads, use.d) if use.heads else (use.rows, use.d)
        table = turns(200, use.turned)[draw.integers(0, 200, use.rows)]
        name = f"{use.kind} {'x'.join(map(str, shape[1:]))}/{use.turned}{' normed' * use.norm}"
        arrays = draw.bf16(*shape, scale=3.0), draw.bf16(use.d), table, eps
        found.append(Case(name, arrays, {"kind": use.kind, "norm": use.norm}, rows=use.rows == 16))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "norm_rope_pack": ("x", "table"),
}
