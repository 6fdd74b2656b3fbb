"""log, exp and sums as stated float32 steps, so that every device gives the same bits. Knows nothing of sampling.

Each `+`, `-` and `*` below is one float32 operation rounded to nearest; they run as separate operations, never inside
mx.compile, which may fuse a multiply and an add into one rounding. A kernel restates them with p_add and p_mul, not
with p_fma. No result hangs on a subnormal, so flushing them changes nothing; nothing divides or calls a library.
"""

from __future__ import annotations

import mlx.core as mx

# ln 2 = LN2_HIGH + LN2_LOW; LN2_HIGH has 10 bits, so its product with an exponent is exact
LN2_HIGH = 0.693359375
LN2_LOW = -0.00021219444170128554
SQRT_HALF_BITS = 0x3F3504F3
# log1p(f) = f - f^2/2 + f^3 P(f): minimax P on sqrt(1/2)-1 .. sqrt(2)-1, constant term first, each rounded to float32
LOG_P = (
    0.3333333134651184,
    -0.25000837445259094,
    0.2000129222869873,
    -0.16622765362262726,
    0.14199694991111755,
    -0.13164186477661133,
    0.1277911514043808,
    -0.07646104693412781,
)
# exp(r) = 1 + r + r^2 Q(r): minimax Q on |r| <= ln(2)/2, constant term first, each rounded to float32
EXP_Q = (0.5, 0.16666516661643982, 0.04166620224714279, 0.008369073271751404, 0.0013950809370726347)
LOG2_E = 1.4426950216293335
EXP_LOWEST = -87.0
SMALLEST_NORMAL = 2.0**-126


def _horner(x: mx.array, coefficients: tuple[float, ...]) -> mx.array:
    total = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        total = total * x + c
    return total


def split(x: mx.array) -> tuple[mx.array, mx.array]:
    """Exponent k (int32) and f (float32), x = 2^k (1 + f) exactly, 1 + f in sqrt(1/2)..sqrt(2); x positive, normal."""
    bits = mx.view(x, mx.int32)
    k = (bits - SQRT_HALF_BITS) >> 23
    return k, mx.view(bits - k * 8388608, mx.float32) - 1.0


def log_of(k: mx.array, f: mx.array) -> mx.array:
    """log(2^k (1 + f)): ((((f z) P + k LN2_LOW) - z/2) + f) + k LN2_HIGH with z = f f and P by Horner's rule."""
    k = k.astype(mx.float32)
    z = f * f
    tail = (f * z) * _horner(f, LOG_P) + k * LN2_LOW
    return (f + (tail - z * 0.5)) + k * LN2_HIGH


def log(x: mx.array) -> mx.array:
    """Natural logarithm of positive normal float32, within 2 ulp; anything else gives an unspecified value."""
    return log_of(*split(x))


def exp(x: mx.array) -> mx.array:
    """exp of float32 x <= 0, within 2 ulp; 0 below -87, NaN for NaN."""
    inside = mx.maximum(x, EXP_LOWEST)
    k = mx.floor(inside * LOG2_E + 0.5)
    r = (inside - k * LN2_HIGH) - k * LN2_LOW
    small = (r + (r * r) * _horner(r, EXP_Q)) + 1.0
    scale = mx.view((k.astype(mx.int32) + 127) * 8388608, mx.float32)
    return mx.where(x < EXP_LOWEST, 0.0, mx.where(mx.isnan(x), x, small * scale))


def tree_sum(x: mx.array) -> mx.array:
    """Sum over the last axis [..., N] -> [..., 1]: zeros up to a power of two, then halves added until one is left."""
    n = x.shape[-1]
    width = 1 << (n - 1).bit_length()
    if width > n:
        x = mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - n)])
    while width > 1:
        width //= 2
        x = x[..., :width] + x[..., width:]
    return x


def running_sum(x: mx.array) -> mx.array:
    """Inclusive prefix sums over the last axis [..., N]: for d = 1, 2, 4, .. every element adds the one d before it."""
    n, d = x.shape[-1], 1
    while d < n:
        x = mx.concatenate([x[..., :d], x[..., d:] + x[..., :-d]], axis=-1)
        d *= 2
    return x
