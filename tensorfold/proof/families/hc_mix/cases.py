"""hc_dots and hc_mix: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import F32, f32
from tensorfold.proof.proof import Case


def hc_dots() -> list[Case]:
    """Every hidden size; widths that are no multiple of a chunk; extremes; every kind of bit pattern."""
    found = []
    for d, rows in ((40, 16), (128, 3), (256, 3), (5120, 1)):
        draw = inputs.Draw(d)
        m = 5 if d == 40 else 24
        found.append(Case(f"D{d}", (draw.bf16(rows, 4, d), draw.normal(m, 4 * d, scale=0.02)), rows=d == 40))
    draw = inputs.Draw(1)
    found.append(Case("tail", (draw.bf16(3, 4, 168), draw.normal(24, 672, scale=0.02))))
    found.append(Case("extreme", (inputs.extremes_bf16(512).reshape(16, 4, 128), draw.normal(24, 512, scale=0.02))))
    found.append(Case("tiny", (draw.bf16(4, 4, 128, scale=2.0**-120), draw.normal(6, 512, scale=2.0**-7))))
    found.append(Case("any bits", (draw.any_bf16(2, 4, 128), draw.words(6, 512).view(f32)), bounded=False))
    return found


def _parts(draw: inputs.Draw, rows: int, chunks: int, size: float = 1.0) -> F32:
    """Products and a positive sum of squares, so that v is of the size of `size`."""
    part = draw.normal(rows, chunks, 25, scale=size * (512 / chunks) ** 0.5)
    part[:, :, 24] = draw.uniform(400.0, 600.0, rows, chunks)
    return part


def hc_mix() -> list[Case]:
    """Chunks of every hidden size; flat, steep and one-sided mixes; extremes; every kind of bit pattern."""
    norm_eps, hc_eps = np.array([1e-20], f32), np.array([1e-6], f32)
    found = []
    for chunks, rows in ((3, 16), (1, 3), (2, 3), (40, 5)):
        draw = inputs.Draw(chunks)
        arrays = (_parts(draw, rows, chunks, 0.3), draw.normal(24), draw.uniform(0.1, 2.0, 3), norm_eps, hc_eps)
        found.append(Case(f"C{chunks}", arrays, {"width": chunks * 512}, rows=chunks == 3))
    draw = inputs.Draw(77)
    for name, size in (("flat", 1e-4), ("steep", 4.0), ("saturated", 60.0)):
        arrays = (_parts(draw, 16, 1, size), draw.normal(24), np.ones(3, f32), norm_eps, hc_eps)
        found.append(Case(name, arrays, {"width": 512}))
    one = _parts(draw, 4, 1)
    found.append(
        Case(
            "one iteration", (one, draw.normal(24), np.ones(3, f32), norm_eps, hc_eps), {"width": 512, "iterations": 1}
        )
    )
    found.append(
        Case(
            "zeros", (np.zeros((2, 2, 25), f32), np.zeros(24, f32), np.ones(3, f32), norm_eps, hc_eps), {"width": 1024}
        )
    )
    tiny = (draw.normal(4, 3, 25, scale=2.0**-124), np.zeros(24, f32), draw.normal(3), norm_eps, hc_eps)
    tiny[0][:, :, 24] = 0.0
    found.append(Case("tiny", tiny, {"width": 1536}))
    wild = _parts(draw, 16, 2)
    wild[:, 0, :24] = inputs.extremes_f32(24)
    found.append(Case("extreme", (wild, draw.normal(24), draw.uniform(0.5, 1.0, 3), norm_eps, hc_eps), {"width": 1024}))
    words = draw.words(8, 2, 25).view(f32)
    found.append(
        Case("any bits", (words, draw.normal(24), np.ones(3, f32), norm_eps, hc_eps), {"width": 1024}, bounded=False)
    )
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "hc_dots": ("x",),
    "hc_mix": ("part",),
}
