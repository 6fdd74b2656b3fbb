"""The keyed noise in numpy: the twin of `keyed.h`, and of the engine's own, bit for bit. Knows no logits.

log E of (seed, position, token): E = -log1p(-v), v from word token % 4 of Philox at counter (token / 4, 0, position)
under the seed as key. The logarithm is the engine's, which plain MLX operations run: no fma and no division, every
operation rounded to float32 apart; that of `functions` has both, and is the kernels' own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.proof.numerics.exact import F32, f32
from tensorfold.proof.numerics.functions import LN2_HIGH, LN2_LOW
from tensorfold.proof.numerics.philox import philox

LOG_P = (0.3333333134651184, -0.25000837445259094, 0.2000129222869873, -0.16622765362262726, 0.14199694991111755,
         -0.13164186477661133, 0.1277911514043808, -0.07646104693412781)  # fmt: skip
ONE_MINUS_SQRT_HALF = f32(0.2928932309150696)
_SQRT_HALF = np.int32(0x3F3504F3)


def _log_of(exponent: NDArray[np.int32], f: F32) -> F32:
    k, z = exponent.astype(f32), f * f
    p = f * f32(LOG_P[-1]) + f32(LOG_P[-2])
    for c in LOG_P[-3::-1]:
        p = p * f + f32(c)
    tail = (f * z) * p + k * LN2_LOW
    return (f + (tail - z * f32(0.5))) + k * LN2_HIGH


def _split(x: F32) -> tuple[NDArray[np.int32], F32]:
    u = x.view(np.int32)
    k = (u - _SQRT_HALF) >> 23
    return k, (u - k * np.int32(1 << 23)).view(f32) - f32(1)


def noise_of(words: NDArray[np.uint32]) -> F32:
    """log E of random words."""
    folded = np.minimum(words, ~words)
    high, low = (folded >> 16).astype(f32), (folded & 0xFFFF).astype(f32) + f32(0.5)
    y = (high * f32(65536) + low) * f32(2.0**-32)
    k, f = _split(y)
    below, near = words >> 31 == 0, y < ONE_MINUS_SQRT_HALF
    k = np.where(below, np.where(near, np.int32(0), np.int32(-1)), k)
    f = np.where(below, np.where(near, -y, f32(1) - y * f32(2)), f)
    return _log_of(*_split(-_log_of(k, f)))


def log_noise(seed: NDArray[np.uint32], position: NDArray[np.int32], vocab_size: int) -> F32:
    """float32 [R, vocab_size] for seed uint32 [R, 2] (low, high) and position int32 [R] >= 0."""
    blocks = -(-vocab_size // 4)
    counter = np.zeros((len(seed), blocks, 4), np.uint64)
    counter[..., 0] = np.arange(blocks)
    counter[..., 2] = position[:, None]
    words = philox(counter, np.broadcast_to(seed[:, None], (len(seed), blocks, 2)))
    return noise_of(words.reshape(len(seed), 4 * blocks)[:, :vocab_size])
