"""hc_post and hc_post_dots: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import F32, f32
from tensorfold.proof.proof import Case


def doubly_normal(draw: inputs.Draw, rows: int, n: int = 4) -> F32:
    """[rows, n, n] positive, rows and columns of sum near one, as the mix gives them."""
    c = draw.uniform(0.01, 1.0, rows, n, n).astype(np.float64)
    for axis in (2, 1) * 8:
        c = c / c.sum(axis, keepdims=True)
    return c.astype(f32)


def hc_post() -> list[Case]:
    """Every hidden size, cancelling streams, extremes, every kind of bit pattern."""
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 2)):
        draw = inputs.Draw(d)
        arrays = (draw.bf16(rows, d), draw.bf16(rows, 4, d), draw.uniform(0.0, 2.0, rows, 4), doubly_normal(draw, rows))
        found.append(Case(f"D{d}", arrays, rows=d == 96))
    draw = inputs.Draw(1)
    x, comb = draw.bf16(16, 4, 160), doubly_normal(draw, 16)
    x[:, 0] = draw.bf16(16, 160, scale=1000.0)
    x[:, 2], comb[:, 2] = x[:, 0] ^ np.uint16(0x8000), comb[:, 0]
    # of three large streams the last bits stay where they cancel: the order of the sum shows in few elements
    found.append(Case("cancelling", (draw.bf16(16, 160), x, draw.uniform(0.0, 2.0, 16, 4), comb)))
    y, post = x[:, 0].copy(), -np.tile(comb[:, :1, 0], (1, 4))
    x = draw.bf16(16, 4, 160)
    x[:, 0], comb = y, np.tile(comb[:, :1, :1], (1, 4, 4))
    found.append(Case("cancelled by the output", (y, x, post, comb)))
    wild = inputs.extremes_bf16(4 * 128).reshape(16, 4, 128)
    mixes = (draw.uniform(0.0, 2.0, 16, 4), doubly_normal(draw, 16))
    found.append(Case("extreme", (draw.bf16(16, 128), wild, *mixes)))
    found.append(Case("extreme output", (inputs.extremes_bf16(128), draw.bf16(16, 4, 128), *mixes)))
    tiny = (draw.bf16(4, 128, scale=2.0**-124), draw.bf16(4, 4, 128, scale=2.0**-124))
    found.append(Case("tiny", (*tiny, mixes[0][:4], mixes[1][:4])))
    words = [draw.words(4, *shape).view(f32) for shape in ((4,), (4, 4))]
    found.append(Case("any bits", (draw.any_bf16(4, 128), draw.any_bf16(4, 4, 128), *words), bounded=False))
    return found


def with_fn(cases: Sequence[Case]) -> list[Case]:
    """Cases of a kernel that makes streams, with factors drawn for them; few places where the streams are few."""
    found = []
    for seed, case in enumerate(cases):
        out = next(a for a in case.arrays if a.dtype == np.uint16 and a.ndim == 3 and a.shape[1] == 4)
        draw = inputs.Draw(1000 + seed)
        m, width = (24 if out.shape[2] in (128, 5120) else 6), 4 * out.shape[2]
        fn = draw.normal(m, width, scale=0.02) if case.bounded else draw.words(m, width).view(f32)
        # every count of rows once is enough
        rows = case.rows and out.shape[2] == 96
        found.append(Case(case.name, (*case.arrays, fn), case.options, rows, case.bounded))
    return found


def hc_post_dots() -> list[Case]:
    """Those of hc_post."""
    return with_fn(hc_post())


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "hc_post": ("y", "x", "post", "comb"),
    "hc_post_dots": ("y", "x", "post", "comb"),
}
