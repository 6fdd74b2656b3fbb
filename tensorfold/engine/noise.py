"""The noise of keyed sampling: a function of (seed, position, token) and of nothing else. Knows no logits and no slots.

bits(seed, position, token) = word token % 4 of Philox4x32-10 with key = (seed low, seed high) and
counter = (token / 4, 0, position low, position high), 32-bit words [Salmon et al., SC 2011].
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np

from tensorfold.engine.elementary import log, log_of, split

PHILOX_M = (0xD2511F53, 0xCD9E8D57)
PHILOX_M_HIGH, PHILOX_M_LOW = tuple(m >> 16 for m in PHILOX_M), tuple(m & 0xFFFF for m in PHILOX_M)
PHILOX_W = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
ONE_MINUS_SQRT_HALF = 0.2928932309150696


@cache
def _words(*values: int) -> mx.array:
    return mx.array(np.array(values, np.uint32).reshape(-1, 1, 1))  # not lazy: a lazy array belongs to one thread


def philox(even: mx.array, odd: mx.array, key: mx.array) -> tuple[mx.array, mx.array]:
    """Philox4x32-10 on uint32: counter words even = (c0, c2) and odd = (c1, c3) stacked [2, R, N], key [2, R, 1].

    Returns the output words stacked the same way. The high words of products are built from 16-bit halves, so that
    uint32 is the only type needed.
    """
    m, m_high, m_low = (_words(*part) for part in (PHILOX_M, PHILOX_M_HIGH, PHILOX_M_LOW))
    w, shift, mask = _words(*PHILOX_W), _words(16), _words(0xFFFF)
    for _ in range(ROUNDS):
        high, low = even >> shift, even & mask
        a = high * m_low + ((low * m_low) >> shift)
        b = low * m_high + (a & mask)
        top = high * m_high + (a >> shift) + (b >> shift)
        even, odd = top[::-1] ^ odd ^ key, (even * m)[::-1]
        key = key + w
    return even, odd


def noise_bits(seed: mx.array, position: mx.array, vocab_size: int) -> mx.array:
    """Random words uint32 [R, vocab_size] for seed uint32 [R, 2] (low, high) and position int32 or int64 [R] >= 0."""
    shape = (position.shape[0], (vocab_size + 3) // 4)
    block = mx.broadcast_to(mx.arange(shape[1], dtype=mx.uint32)[None], shape)
    zero = mx.zeros((shape[0], 1), dtype=mx.uint32)
    wide = position.dtype == mx.int64
    high = (position >> 32).astype(mx.uint32)[:, None] if wide else zero
    low = (position & 0xFFFFFFFF if wide else position).astype(mx.uint32)[:, None]
    even, odd = philox(
        mx.stack([block, mx.broadcast_to(low, shape)]), mx.stack([zero, high]), mx.stack([seed[:, :1], seed[:, 1:]])
    )
    return mx.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(shape[0], -1)[:, :vocab_size]


def exponential(bits: mx.array) -> mx.array:
    """E = -log1p(-v) for v = (bits + 0.5) / 2^32, float32, within 2 ulp: a standard exponential, 2^-33 <= E < 23.

    y = min(v, 1 - v) is formed from min(bits, ~bits) with one rounding, so both tails keep float32's relative
    precision: small E (rare tokens) come in steps of 2^-32, and v never rounds to 1. A token of probability p is drawn
    with probability p x / sinh(x), x = 2^-33 / p: too seldom by a part in 40,000 at p = 1e-8, hardly ever below 2^-36.
    """
    folded = mx.minimum(bits, ~bits)
    # both halves and the product by 2^16 are exact, so only the outer sum rounds
    y = ((folded >> 16).astype(mx.float32) * 65536.0 + ((folded & 0xFFFF).astype(mx.float32) + 0.5)) * 2.0**-32
    near_zero = bits >> 31 == 0
    near_one = y < ONE_MINUS_SQRT_HALF
    k_low = mx.where(near_one, 0, -1)
    f_low = mx.where(near_one, -y, 1.0 - y * 2.0)
    k_high, f_high = split(y)
    return -log_of(mx.where(near_zero, k_low, k_high), mx.where(near_zero, f_low, f_high))


def log_noise(seed: mx.array, position: mx.array, vocab_size: int) -> mx.array:
    """log E, float32 [R, vocab_size]: the token with the largest logit - T * log E is a draw at temperature T."""
    return log(exponential(noise_bits(seed, position, vocab_size)))
