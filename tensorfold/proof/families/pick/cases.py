"""pick_parts and pick: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.pick.stated import PART
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.numerics.keyed import log_noise
from tensorfold.proof.proof import Case


def near_ties(rows: int, vocab: int, seed: int = 3) -> tuple[Array, ...]:
    """Rows whose scores are all within a few ulp of one another, so that the last bit of the noise decides."""
    draw = inputs.Draw(seed)
    temperature = draw.uniform(0.5, 1.5, rows)
    key, position = draw.words(rows, 2), draw.integers(0, 1 << 20, rows)
    logits = f32(3.0) + temperature[:, None] * log_noise(key, position, vocab)
    return logits.astype(f32), temperature, key, position


def _ordinary(rows: int, vocab: int, *temperatures: float) -> tuple[Array, ...]:
    draw = inputs.Draw(rows + vocab)
    t = np.resize(np.array(temperatures, f32), rows)
    return draw.normal(rows, vocab, scale=3.0), t, draw.words(rows, 2), draw.integers(0, 1 << 20, rows)


def pick_parts() -> list[Case]:
    """Every vocabulary in use, greedy and sampled rows together, ties, near ties, last tokens, extremes."""
    found = [
        Case("V512", _ordinary(3, 512, 0.0, 1.0, 0.7)),
        Case("V2048", _ordinary(3, 2048, 0.0, 1.0, 1.3)),
        Case("V1100", _ordinary(16, 1100, 1.0, 0.0, 0.3), rows=True),
        Case("near ties", near_ties(16, 1100)),
        Case("V129280", _ordinary(1, 129280, 1.0)),
    ]
    last = _ordinary(4, 1027, 0.0, 1.0)
    last[0][0, 1026], last[0][1, 1026], last[0][2, 1023], last[0][3, 0] = 90.0, 90.0, 90.0, 90.0
    found.append(Case("first and last tokens", last))
    draw = inputs.Draw(2)
    rest = draw.words(16, 2), draw.integers(0, 1 << 20, 16)
    few, cold, mixed = draw.integers(-2, 3, 16, 1100).astype(f32), np.zeros(16, f32), draw.uniform(0.0, 2.0, 16)
    found.append(Case("ties", (few, cold, *rest)))
    found.append(Case("zeros of both signs", (np.where(few > 0, f32(0), f32(-0.0)), cold, *rest)))
    found.append(Case("extreme, greedy", (inputs.extremes_f32(1100), cold, *rest)))
    found.append(Case("extreme, sampled", (inputs.extremes_f32(1100), mixed, *rest)))
    banned = np.full((16, 40), -np.inf, f32)
    banned[1::2, 7::9] = np.nan
    found.append(Case("nothing left", (banned, mixed, *rest)))
    edge = np.array([0, 1, 0xFFFFFFFF, 1 << 31], np.uint32)
    ends = np.stack([edge, edge[::-1]], -1), np.array([0, 1, 2**31 - 1, 1 << 30], np.int32)
    found.append(Case("ends of seeds and positions", (few[:4, :300], np.ones(4, f32), *ends)))
    return found


def _drawn(rows: int, count: int, keys: int, flawed: bool) -> tuple[Array]:
    """Parts with few different keys and, in some, flaws; tokens ascending."""
    draw = inputs.Draw(rows * count + keys)
    key = np.uint32(0xFFFFFFFF) - draw.integers(0, keys, rows, count).astype(np.uint32)
    token = np.arange(count, dtype=np.uint32) * PART + draw.integers(0, PART, rows, count).astype(np.uint32)
    flaw = (draw.integers(0, 2 * count, rows, count) == 0) & flawed
    return (np.stack([key, token, flaw.astype(np.uint32)], -1).astype(np.uint32),)


def pick() -> list[Case]:
    """Every number of parts in use, ties across lanes and turns, the best in the first and last part, flaws."""
    found = [Case(f"{count} parts", _drawn(3, count, 1 << 30, False)) for count in (1, 2, 127)]
    found.append(Case("rows", _drawn(16, 40, 3, True), rows=True))
    found.append(Case("ties", _drawn(16, 127, 2, True)))
    (ends,) = _drawn(4, 127, 1 << 20, False)
    ends[0, 126, 0] = ends[1, 0, 0] = ends[2, 31, 0] = ends[3, 32, 0] = 0xFFFFFFFF
    ends[0, 126, 2] = 1
    found.append(Case("first and last part", (ends,)))
    nothing = np.ones((2, 5, 3), np.uint32)
    nothing[..., 1] = np.arange(5) * PART
    found.append(Case("nothing but NaN", (nothing,)))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "pick_parts": ("logits", "temperature", "seed", "position"),
    "pick": ("parts",),
}
