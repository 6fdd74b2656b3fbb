"""Exact quantisers and decoders of the model's formats, in plain mx operations; knows no weights and no caches.

Formulas: docs/model.md#numbers. A block that holds a non-finite value gets a NaN scale,
so it decodes to NaN.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np

from tensorfold import codes as by_code
from tensorfold.backend.layout import RowKind

_INV_448 = float(np.float32(1.0 / 448.0))
_INV_6 = float(np.float32(1.0 / 6.0))
_NAN = float("nan")


@cache  # not at the import, which leaves MLX unused: a process may fork before it loads
def ue8m0() -> mx.array:
    """float32 [256]: the value of a scale byte."""
    return mx.array(by_code.UE8M0)


@cache
def e4m3() -> mx.array:
    """float32 [256]: the value of a code."""
    return mx.array(by_code.E4M3)


@cache
def e2m1_pairs() -> mx.array:
    """float32 [256, 2]: the values of both codes of a byte, the lower one first."""
    return mx.array(np.stack([np.tile(by_code.E2M1, 16), np.repeat(by_code.E2M1, 16)], 1))


def _blocks(x: mx.array, size: int) -> mx.array:
    return x.reshape(*x.shape[:-1], -1, size).astype(mx.float32)


def _pow2_ceil_bits(x: mx.array) -> mx.array:
    """int32 bits of the smallest power of two that is not below a positive x; of infinity for x infinite or NaN."""
    return (mx.minimum(x.view(mx.int32) & 0x7FFFFFFF, 0x7F800000) + 0x7FFFFF) & 0x7F800000


def _fp8_blocks(x: mx.array) -> tuple[mx.array, mx.array]:
    """e4m3 codes [..., n, 32] and the int32 bits of the scales [..., n, 1]."""
    g = _blocks(x, 32)
    bits = _pow2_ceil_bits(mx.maximum(mx.max(mx.abs(g), -1, keepdims=True), 1e-4) * _INV_448)
    return mx.to_fp8(g / bits.view(mx.float32)), bits


def _scale_bytes(bits: mx.array) -> mx.array:
    return (bits >> 23).astype(mx.uint8).squeeze(-1)


def _finite(bits: mx.array) -> mx.array:
    """Scale values from their bits; the all-ones exponent is NaN, as byte 255 is."""
    return mx.where(bits == 0x7F800000, _NAN, bits.view(mx.float32))


def round_trip_fp8(x: mx.array) -> mx.array:
    """act_quant of bf16 [..., K] and back: bf16 [..., K], block 32, power-of-two scales."""
    codes, bits = _fp8_blocks(x)
    return (mx.from_fp8(codes, mx.float32) * _finite(bits)).astype(mx.bfloat16).reshape(x.shape)


def e2m1_codes(v: mx.array) -> mx.array:
    """4-bit codes of float32 values within [-6, 6], ties to the even code."""
    m = mx.abs(v)
    # below 2 the grid is linear in steps of one half, above 2 in steps of 1, above 4 in steps of 2;
    # round is ties-to-even
    code = mx.where(m < 2, mx.round(m * 2), mx.where(m < 4, mx.round(m) + 2, mx.round(m * 0.5) + 4))
    sign = (v.view(mx.int32) >> 28) & 8
    return (code.astype(mx.int32) | sign).astype(mx.uint8)


def _fp4_pack(v: mx.array) -> mx.array:
    codes = e2m1_codes(v)
    pairs = codes.reshape(*codes.shape[:-2], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4)


def quant_fp4_e8m0(x: mx.array) -> tuple[mx.array, mx.array]:
    """bf16 [..., K] -> nibbles uint8 [..., K/2] (even element low) and UE8M0 bytes [..., K/32]."""
    g = _blocks(x, 32)
    bits = _pow2_ceil_bits(mx.maximum(mx.max(mx.abs(g), -1, keepdims=True), 6 * 2.0**-126) * _INV_6)
    return _fp4_pack(mx.clip(g / bits.view(mx.float32), -6, 6)), _scale_bytes(bits)


def quant_fp4_e4m3(x: mx.array) -> tuple[mx.array, mx.array]:
    """bf16 [..., K] -> nibbles uint8 [..., K/2] and e4m3 scale codes [..., K/16]; the scale saturates at 448."""
    g = _blocks(x, 16)
    amax = mx.max(mx.abs(g), -1, keepdims=True)
    codes = mx.to_fp8(mx.maximum(amax, 6 * 2.0**-9) / 6.0)
    codes = mx.where(mx.isfinite(amax), codes, 0x7F).astype(mx.uint8)
    return _fp4_pack(mx.clip(g / mx.from_fp8(codes, mx.float32), -6, 6)), codes.squeeze(-1)


def pack(x: mx.array, kind: RowKind) -> mx.array:
    """bf16 [..., dim] -> packed rows uint8 [..., kind.row_bytes(dim)]."""
    if kind is RowKind.WINDOW:
        blocks, bits = _fp8_blocks(x)
        codes, scales = blocks.reshape(x.shape), _scale_bytes(bits)
    else:
        codes, scales = (quant_fp4_e4m3 if kind is RowKind.COMPRESSED else quant_fp4_e8m0)(x)
    return mx.concatenate([codes, scales], -1)


def split(rows: mx.array, kind: RowKind) -> tuple[mx.array, mx.array]:
    """Packed rows -> unscaled values float32 [..., blocks, block] and scale values float32 [..., blocks, 1]."""
    dim = kind.dim(rows.shape[-1])
    codes, scales = mx.split(rows, [kind.code_bytes(dim)], -1)
    values = mx.from_fp8(codes, mx.float32) if kind is RowKind.WINDOW else e2m1_pairs()[codes]
    table = e4m3() if kind is RowKind.COMPRESSED else ue8m0()
    return values.reshape(*rows.shape[:-1], -1, kind.block), table[scales][..., None]


def unpack(rows: mx.array, kind: RowKind) -> mx.array:
    """Packed rows uint8 [..., bytes] -> float32 [..., dim], exactly the bf16 values that were packed."""
    values, scales = split(rows, kind)
    return (values * scales).reshape(*rows.shape[:-1], -1)


def unpack_rows(codes: mx.array, scales: mx.array) -> mx.array:
    """Engram rows, e4m3 codes uint8 [R, n, d] and UE8M0 bytes [R, n, d/32] -> bf16 [R, n * d]."""
    values = mx.from_fp8(codes, mx.float32).reshape(*codes.shape[:-1], -1, 32)
    values = values * ue8m0()[scales][..., None]
    return values.reshape(codes.shape[0], -1).astype(mx.bfloat16)
