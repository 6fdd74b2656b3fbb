"""The quantisers, act_quant_*: codes and scales with the bit steps of codes.h, in float32. Knows no launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.reference import (
    FP4_E4M3,
    FP4_E8M0,
    FP8,
    Codes,
    Format,
    as_planes,
    blocks_of,
    in_bytes,
    zero_codes,
)
from tensorfold.proof.numerics.codes import E4M3, ceil_ue8m0, inverse_ue8m0, to_e2m1, to_e4m3
from tensorfold.proof.numerics.exact import F32, Bits, bits, f32, mul_flushed, store_bf16, store_f32


class Steps(NamedTuple):
    """How a format's source makes the scale byte of a block's largest magnitude, and codes of values under it; the
    largest magnitude is not below `floor`."""

    form: Format
    floor: float
    scale: Callable[[F32], Codes]
    codes: Callable[[F32, Codes], Codes]


def _e4m3_scale(top: F32) -> Codes:
    return np.where(np.isfinite(top), to_e4m3(top / f32(6)), 0x7F).astype(np.uint8)


def _times_inverse(encode: Callable[[F32], Codes]) -> Callable[[F32, Codes], Codes]:
    return lambda v, scale: encode(v * inverse_ue8m0(np.minimum(scale, 253)))


_FP8 = Steps(FP8, 1e-4, lambda top: ceil_ue8m0(top * f32(1 / 448)), _times_inverse(to_e4m3))
_FP4_E8M0 = Steps(FP4_E8M0, 6 * 2.0**-126, lambda top: ceil_ue8m0(top * f32(1 / 6)), _times_inverse(to_e2m1))
# its scale is not a power of two: both divisions are true ones
_FP4_E4M3 = Steps(FP4_E4M3, 6 * 2.0**-9, _e4m3_scale, lambda v, scale: to_e2m1(v / E4M3[scale]))


def _codes(x: Bits, steps: Steps) -> tuple[Codes, Codes]:
    """Codes [..., n, block] and scale bytes [..., n, 1] as the source computes them."""
    v = blocks_of(x, steps.form.block)
    # by bit patterns, so that NaN wins
    top = np.maximum((bits(v) & 0x7FFFFFFF).max(-1, keepdims=True), bits(f32(steps.floor))).view(f32)
    with np.errstate(all="ignore"):
        scale = steps.scale(top)
        codes = steps.codes(v, scale)
    return np.where(scale == steps.form.nan, zero_codes(v, steps.form), codes), scale


def _apart(x: Bits, steps: Steps) -> list[Array]:
    codes, scale = _codes(x, steps)
    return [in_bytes(codes, steps.form), scale[..., 0]]


def _packed(x: Bits, steps: Steps) -> list[Array]:
    return [np.concatenate(_apart(x, steps), axis=-1)]


def _values(x: Bits, steps: Steps) -> F32:
    codes, scale = _codes(x, steps)
    return mul_flushed(steps.form.values[codes], steps.form.scales[scale]).reshape(x.shape)


def _rounded(x: Bits, steps: Steps) -> list[Array]:
    return [store_bf16(_values(x, steps))]


act_quant_fp4_e4m3 = partial(_apart, steps=_FP4_E4M3)
act_quant_fp4_e4m3_pack = partial(_packed, steps=_FP4_E4M3)
act_quant_fp4_e4m3_round = partial(_rounded, steps=_FP4_E4M3)
act_quant_fp4_e8m0 = partial(_apart, steps=_FP4_E8M0)
act_quant_fp4_e8m0_pack = partial(_packed, steps=_FP4_E8M0)
act_quant_fp4_e8m0_round = partial(_rounded, steps=_FP4_E8M0)
act_quant_fp8 = partial(_apart, steps=_FP8)
act_quant_fp8_pack = partial(_packed, steps=_FP8)
act_quant_fp8_round = partial(_rounded, steps=_FP8)


def act_quant_fp8_planes(x: Bits) -> list[Array]:
    """Values as planes."""
    return [store_f32(as_planes(_values(x, _FP8)))]
