"""The first launch of the pick: scores and the best token of each part. Knows no second launch.

A token is chosen by float32 scores, so the choice is defined by them: the truth compares the stated scores as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import F32, bits, f32, flush, load, mul_flushed
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.pick.noise import log_noise

PART = 1024


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """logits float32 [R, V], temperature float32 [R] (0 is greedy), seed uint32 [R, 2] (low, high), position int32 [R]
    (>= 0, of the token being drawn) -> parts uint32 [R, ceil(V / 1024), 3]: key of a part's best score, its token, 1
    where a logit of the part is NaN or infinite."""
    logits, temperature, seed, position = arrays
    rows, vocab = logits.shape
    shapes = tuple(temperature.shape), tuple(seed.shape), tuple(position.shape)
    if shapes != ((rows,), (rows, 2), (rows,)):
        raise ValueError(
            f"pick_parts: temperature, seed and position have shapes {shapes}, expected {((rows,), (rows, 2), (rows,))}"
        )
    parts, threads = -(-vocab // PART), 32 * geometry["G"]
    return Launch(
        {"V": vocab, "G": geometry["G"]}, (parts * threads, rows, 1), (threads, 1, 1), ((rows, parts, 3),), (mx.uint32,)
    )


def scores(logits: Array, temperature: Array, seed: Array, position: Array) -> F32:
    """float32 [R, V]: logit - temperature * noise, the product and the difference rounded and flushed apart."""
    t = load(temperature)[:, None]
    with np.errstate(all="ignore"):
        x = load(logits) + f32(0)
        warm = t[:, 0] != 0
        y = x.copy()
        y[warm] = flush(x[warm] - mul_flushed(t[warm], log_noise(seed[warm], position[warm], logits.shape[1])))
        return y


def key_of(v: F32) -> Array:
    """uint32 keys: larger is better, NaN is 1."""
    u = bits(v)
    return np.where(np.isnan(v), np.uint32(1), np.where(u >> 31 == 1, ~u, u | np.uint32(1 << 31))).astype(np.uint32)


def _parts(logits: Array, keys: Array, best: Any) -> list[Array]:
    """Cut into parts; best(part's columns) -> index in the part, [R]."""
    found = []
    for start in range(0, logits.shape[1], PART):
        cut = slice(start, start + PART)
        at = best(cut)
        key = np.take_along_axis(keys[:, cut], at[:, None], -1)[:, 0]
        with np.errstate(invalid="ignore"):
            flaw = ~np.all(np.abs(logits[:, cut]) < np.inf, -1)
        found.append(np.stack([key, (at + start).astype(np.uint32), flaw.astype(np.uint32)], -1))
    return [np.stack(found, 1)]


def reference(logits: Array, temperature: Array, seed: Array, position: Array) -> list[Array]:
    """The first largest score of each part, compared as float64 numbers, NaN below -inf."""
    y = scores(logits, temperature, seed, position).astype(np.float64)
    lowest = np.where(np.isnan(y), -np.inf, np.where(np.isneginf(y), np.finfo(np.float64).min, y))
    return _parts(logits, key_of(y.astype(f32)), lambda cut: np.argmax(lowest[:, cut], -1))


def stated(logits: Array, temperature: Array, seed: Array, position: Array) -> list[Array]:
    """By integer keys."""
    keys = key_of(scores(logits, temperature, seed, position))
    return _parts(logits, keys, lambda cut: np.argmax(keys[:, cut], -1))


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


def cases() -> list[Case]:
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


KERNEL = Kernel(
    name="pick_parts",
    path=Path(__file__).with_name("pick_parts.metal"),
    inputs=("logits", "temperature", "seed", "position"),
    outputs=("parts",),
    geometries=({"G": 8}, {"G": 1}, {"G": 4}),
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound("keys, tokens and flaws are integers of the stated scores and must be equal"),
    controls=(
        Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Control("product and difference fused", "p_sub(x, p_mulz(t, noise[i]))", "p_fma(p_neg(t), noise[i], x)"),
        Control(
            "sums of the logarithm in another order",
            "p_add(p_add(f, p_sub(tail, p_mul(z, 0.5f))), p_mul(k, 0.693359375f))",
            "p_add(p_sub(tail, p_mul(z, 0.5f)), p_add(f, p_mul(k, 0.693359375f)))",
            file="keyed.h",
        ),
        Control("ties to the higher token of a thread", "at = key > best ?", "at = key >= best ?"),
        Control(
            "ties to the higher token of the lanes",
            "~p_lanemaxu(best == top ? ~at : 0u)",
            "p_lanemaxu(best == top ? at : 0u)",
        ),
        Control("words of a block reversed", "keyed_noise(words.x)", "keyed_noise(words.w)"),
        Control("seed's halves swapped", "key.x = seed[2u * row];", "key.x = seed[2u * row + 1u];"),
        Control("noise of the token before", "counter.x = block;", "counter.x = block - 1u;"),
        Control("the next row's position", "uint(position[row])", "uint(position[row]) + 1u"),
        Control("-0 below +0", "+ token]), 0.0f)", "+ token]), p_neg(0.0f))"),
        Control("NaN first", "p_isnan(v) ? 1u", "p_isnan(v) ? 0xffffffffu"),
        Control("infinity called finite", "p_abs(x) < p_inf() ? 0u", "p_abs(x) <= p_inf() ? 0u"),
        Control("last tokens missed", "if (token < uint(V)) {", "if (token + 1u < uint(V)) {"),
        Control("tokens past the end read", "if (token < uint(V)) {", "if (token <= uint(V)) {", backends=("host",)),
        Control("last SIMD group forgotten", "g < uint(G); g++", "g + 1u < uint(G); g++"),
    ),
    cases=cases,
    row_inputs=("logits", "temperature", "seed", "position"),
)
