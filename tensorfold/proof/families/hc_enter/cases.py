"""hc_enter: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from tensorfold.proof.families.hc_collapse_norm.cases import hc_collapse_norm
from tensorfold.proof.families.hc_mix.cases import hc_mix
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32, store_bf16
from tensorfold.proof.proof import Case


def hc_enter() -> list[Case]:
    """Each case of the norm beside one of the mix: every hidden size, ties, extremes, any bits on both sides."""
    mixes = {case.name: case for case in hc_mix()}
    largest = mixes.pop("C40")
    bounded, wild = cycle([c for c in mixes.values() if c.bounded]), cycle([c for c in mixes.values() if not c.bounded])
    found = []
    for case in hc_collapse_norm():
        if not case.options.get("norm", True):
            continue
        x, pre, w, eps = case.arrays
        beside = largest if x.shape[2] == 5120 else next(bounded if case.bounded else wild)
        part, base, scale, _, hc_eps = beside.arrays
        arrays = (part[np.arange(len(x)) % len(part)], base, scale, eps, hc_eps, x, pre, w)
        found.append(Case(f"{case.name}, {beside.name}", arrays, beside.options, case.rows, case.bounded))
    return [*found, *_planes_cases()]


def _planes_cases() -> list[Case]:
    """For the quantiser: blocks whose magnitudes lie far apart, zeros of both signs, blocks under the floor."""
    draw = inputs.Draw(31)
    powers = np.repeat(np.exp2(draw.integers(-40, 20, 16, 4).astype(f32)), 32, axis=1)
    x = store_bf16(draw.normal(16, 128) * powers)[:, None]
    x[0, 0, :32], x[1, 0, 32:64] = 0, 0x8000
    one = np.ones((16, 1), f32)
    part = np.zeros((16, 1, 25), f32)
    gain, flat = store_bf16(np.ones(128, f32)), (np.zeros(24, f32), np.ones(3, f32), np.array([1e-20], f32))
    arrays = (part, *flat, np.array([1e-6], f32), x, one, gain)
    tiny = (part, *flat, np.array([1e-6], f32), draw.bf16(16, 1, 128), one, store_bf16(np.full(128, 2.0**-30, f32)))
    return [Case("blocks far apart", arrays, {"width": 128}), Case("under the floor", tiny, {"width": 128})]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "hc_enter": ("part", "x", "pre"),
}
