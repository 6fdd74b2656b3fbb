"""pick_parts and pick: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import F32, bits, f32, flush, load, mul_flushed
from tensorfold.proof.numerics.keyed import log_noise

PART = 1024  # tokens of a part


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


def cut_into_parts(logits: Array, keys: Array, best: Any) -> list[Array]:
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


def pick_parts(logits: Array, temperature: Array, seed: Array, position: Array) -> list[Array]:
    """By integer keys."""
    keys = key_of(scores(logits, temperature, seed, position))
    return cut_into_parts(logits, keys, lambda cut: np.argmax(keys[:, cut], -1))


def pick(given: Array) -> list[Array]:
    """The largest key, ties to the lower token: sorted by both."""
    order = [np.lexsort((row[:, 1], ~row[:, 0]))[0] for row in given]
    ids = np.array([row[i, 1] for row, i in zip(given, order)], np.int32)
    return [ids, ~np.any(given[:, :, 2] != 0, -1)]
