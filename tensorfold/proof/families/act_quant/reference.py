"""The quantisers, act_quant_*: codes and scales by brute force over every one, in float64. Knows no launch.

Source: docs/model.md#numbers. A block that holds a NaN or an infinity gets a NaN scale, and every code
of it is a zero of its element's sign. An all-zero block has the format's smallest scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.codes import E2M1, E4M3, UE8M0, pack_nibbles
from tensorfold.proof.numerics.exact import F32, Bits, f32, load, wide
from tensorfold.proof.proof import Bound

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Format:
    """Elements a block; values by code, of which the first `finite` ascend; the bit of the sign; scales by byte and the
    byte that is NaN; the scale byte of the largest magnitude of each block, [.., 1] -> [.., 1]."""

    block: int
    values: F32
    finite: int
    sign: int
    scales: F32
    nan: int
    scale: Callable[[NDArray[np.float64]], Codes]


def nearest(values: NDArray[np.float64], table: F32, sign_bit: int) -> Codes:
    """The code of the nearest value among the finite magnitudes of `table` (ascending), ties to the even code."""
    grid = table.astype(np.float64)
    magnitude = np.minimum(np.abs(values), grid[-1])
    above = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    low, high = magnitude - grid[above - 1], grid[above] - magnitude
    code = np.where(low < high, above - 1, np.where(low > high, above, above - above % 2))
    return (code | np.where(np.signbit(values), sign_bit, 0)).astype(np.uint8)


def power_of_two(top: NDArray[np.float64], floor: float, factor: np.float32) -> Codes:
    """UE8M0 byte of the least power of two >= the largest magnitude times `factor`, by search."""
    wanted = (np.maximum(top, f32(floor)) * np.float64(factor)).astype(f32).astype(np.float64)
    # beyond the last power of two lie infinity and NaN: byte 255
    return (np.searchsorted(np.ldexp(1.0, np.arange(1, 255) - 127), wanted) + 1).astype(np.uint8)


def e4m3_of_sixth(top: NDArray[np.float64]) -> Codes:
    """e4m3 code of the largest magnitude over 6, by search; NaN where it is not finite."""
    code = nearest(np.maximum(top, 6 * 2.0**-9) / 6, E4M3[:127], 0x80)
    return np.where(np.isfinite(top), code, 0x7F).astype(np.uint8)


FP8 = Format(32, E4M3, 127, 0x80, UE8M0, 255, partial(power_of_two, floor=1e-4, factor=f32(1 / 448)))
FP4_E8M0 = Format(32, E2M1, 8, 8, UE8M0, 255, partial(power_of_two, floor=6 * 2.0**-126, factor=f32(1 / 6)))
FP4_E4M3 = Format(16, E2M1, 8, 8, E4M3, 0x7F, e4m3_of_sixth)


def blocks_of(x: Bits, block: int) -> F32:
    """The loaded values, [..., K / block, block]."""
    return load(x).reshape(*x.shape[:-1], -1, block)


def scale_bytes(x: Bits, form: Format) -> Codes:
    """The scale byte of each block, [..., K / block, 1]."""
    with np.errstate(all="ignore"):
        return form.scale(np.abs(wide(x)).reshape(*x.shape[:-1], -1, form.block).max(-1, keepdims=True))


def zero_codes(v: F32, form: Format) -> Codes:
    """What a block with a NaN scale holds: a zero of each element's sign."""
    return np.where(np.signbit(v), form.sign, 0).astype(np.uint8)


def _exact(x: Bits, form: Format) -> tuple[Codes, Codes]:
    """Codes [..., n, block] and scale bytes [..., n, 1]."""
    v, scale = blocks_of(x, form.block), scale_bytes(x, form)
    with np.errstate(all="ignore"):
        codes = nearest(v.astype(np.float64) / form.scales[scale], form.values[: form.finite], form.sign)
    return np.where(scale == form.nan, zero_codes(v, form), codes), scale


def in_bytes(codes: Codes, form: Format) -> Codes:
    """Codes of blocks [..., n, block] as bytes of a row: two codes of four bits a byte, or one of eight."""
    row = codes.reshape(*codes.shape[:-2], -1)
    return row if form.sign == 0x80 else pack_nibbles(row)


def _apart(x: Bits, form: Format) -> list[Array]:
    codes, scale = _exact(x, form)
    return [in_bytes(codes, form), scale[..., 0]]


def _packed(x: Bits, form: Format) -> list[Array]:
    """Codes, then scales."""
    return [np.concatenate(_apart(x, form), axis=-1)]


def _rounded(x: Bits, form: Format) -> list[Array]:
    codes, scale = _exact(x, form)
    with np.errstate(all="ignore"):
        return [(form.values[codes].astype(np.float64) * form.scales[scale]).reshape(x.shape)]


def as_planes(values: Array) -> Array:
    """[..., K] -> [..., 4, K / 16, 4]: element 16 c + 4 j + e of a row at [j, c, e]."""
    parts = values.reshape(*values.shape[:-1], -1, 4, 4)
    return np.ascontiguousarray(np.moveaxis(parts, -2, -3))


act_quant_fp4_e4m3 = partial(_apart, form=FP4_E4M3)
act_quant_fp4_e4m3_pack = partial(_packed, form=FP4_E4M3)
act_quant_fp4_e4m3_round = partial(_rounded, form=FP4_E4M3)
act_quant_fp4_e8m0 = partial(_apart, form=FP4_E8M0)
act_quant_fp4_e8m0_pack = partial(_packed, form=FP4_E8M0)
act_quant_fp4_e8m0_round = partial(_rounded, form=FP4_E8M0)
act_quant_fp8 = partial(_apart, form=FP8)
act_quant_fp8_pack = partial(_packed, form=FP8)
act_quant_fp8_round = partial(_rounded, form=FP8)


def act_quant_fp8_planes(x: Bits) -> list[Array]:
    """Values as planes."""
    return [as_planes(act_quant_fp8_round(x)[0])]


def _bound(bits: int) -> Bound:
    why = (
        f"codes and scales are integers and must be equal; bfloat16 holds the {bits} significant bits of code * scale "
    )
    return Bound(why + "exactly", ulps=0.0)


_KINDS = {
    "act_quant_fp4_e4m3": (6, ("", "_pack", "_round")),
    "act_quant_fp4_e8m0": (2, ("", "_pack", "_round")),
    "act_quant_fp8": (4, ("", "_pack", "_round", "_planes")),
}
BOUNDS = {f"{name}{kind}": _bound(bits) for name, (bits, kinds) in _KINDS.items() for kind in kinds}
