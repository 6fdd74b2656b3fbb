"""Quantisers and decoders of the ops backend by brute force: every code, and every bfloat16 value in many blocks.

The restatement looks for the nearest code in a table; it shares no arithmetic with the code it judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import linear, quant

F32, F64 = np.float32, np.float64
TINY = F32(2.0**-126)
ALL = np.arange(65536, dtype=np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(F32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Nearest bfloat16 of float32 values, as float32; ties to even; finite values only."""
    low, near = x.view(np.uint32) & 0xFFFF, x.view(np.uint32) >> 16
    up = (low > 0x8000) | ((low == 0x8000) & (near & 1 == 1))
    return ((near + up) << 16).astype(np.uint32).view(F32)


def bf16_array(x: np.ndarray) -> mx.array:
    return mx.array((np.ascontiguousarray(x, F32).view(np.uint32) >> 16).astype(np.uint16)).view(mx.bfloat16)


# ---- tables, written out from the definition of the formats

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E4M3 = [m / 512 for m in range(8)] + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)][:-1]


def nearest(magnitude: np.ndarray, table: list[float]) -> np.ndarray:
    """Index of the nearest entry (entry = code); a tie goes to the even code, what is beyond the end to the last."""
    grid = np.array(table)
    middle = (grid[:-1] + grid[1:]) / 2  # exact
    above = np.searchsorted(middle, magnitude.astype(F64), side="left")  # entries whose upper middle is below the value
    tie = (above < len(middle)) & (middle[np.minimum(above, len(middle) - 1)] == magnitude)
    return above + (tie & (above % 2 == 1))


def encode(x: np.ndarray, table: list[float]) -> np.ndarray:
    """Codes of values, the sign above the magnitude bits; -0 keeps its sign."""
    sign = {8: 8, 127: 128}[len(table)]
    return (nearest(np.abs(x), table) + np.signbit(x) * sign).astype(np.uint8)


def power_not_below(x: np.ndarray) -> np.ndarray:
    fraction, exponent = np.frexp(x.astype(F64))
    return np.ldexp(1.0, exponent - (fraction == 0.5))


# ---- the three quantisers: codes, scale bytes, scales; docs/model.md#numbers


def act_quant(g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    amax = np.maximum(np.abs(g).max(-1, keepdims=True), F32(1e-4))
    s = power_not_below(amax * F32(1 / 448))
    return encode(np.clip(g / s, -448, 448), E4M3), (np.log2(s) + 127).astype(np.uint8), s


def fp4_e8m0(g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    amax = np.maximum(np.abs(g).max(-1, keepdims=True), F32(6 * 2.0**-126))
    s = power_not_below(amax * F32(1 / 6))
    return encode(np.clip(g / s, -6, 6), E2M1), (np.log2(s) + 127).astype(np.uint8), s


def fp4_e4m3(g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    amax = np.maximum(np.abs(g).max(-1, keepdims=True), F32(6 * 2.0**-9))
    code = nearest(amax / F32(6), E4M3).astype(np.uint8)
    s = np.array(E4M3)[code]
    # the division is one of float32 values, rounded to float32 before it is compared with the grid
    return encode(np.clip((g / s.astype(F32)).astype(F32), -6, 6), E2M1), code, s


RULES = {RowKind.WINDOW: act_quant, RowKind.COMPRESSED: fp4_e4m3, RowKind.KEY: fp4_e8m0}


def value_of(kind: RowKind, codes: np.ndarray, s: np.ndarray) -> np.ndarray:
    """What a block decodes to, rounded to bfloat16; what is below the normal numbers is zero by rule."""
    table, sign = (E4M3 + [np.nan], 128) if kind is RowKind.WINDOW else (E2M1, 8)
    value = np.array(table)[codes & (sign - 1)] * s
    with np.errstate(over="ignore"):
        return flush(to_bf16(np.where(codes & sign, -value, value).astype(F32)))


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, F32(0), x)


@cache
def blocks(size: int) -> dict[str, np.ndarray]:
    """Finite blocks: every bfloat16 value alone among zeros, beside its neighbours, and under maxima that put it on
    every part of a grid; blocks of zeros of both signs."""
    values = from_bf16(ALL)
    finite = values[np.isfinite(values)]
    out = {"alone": np.zeros((len(finite), size), F32)}
    out["alone"][:, size // 2] = finite
    out["neighbours"] = finite[: len(finite) // size * size].reshape(-1, size)
    for shift in (1, 5, 13):
        for top in (1.0, 1.9921875):  # mantissas of the maximum: none, all ones
            with np.errstate(over="ignore", invalid="ignore"):
                exponent = np.ldexp(F32(top), np.frexp(finite)[1] - 1 + shift).astype(F32)
            fits = np.isfinite(exponent) & (finite != 0)
            block = np.repeat(finite[fits][:, None], size, 1)
            block[:, 0] = exponent[fits]
            out[f"under {top} << {shift}"] = block
    out["zeros"] = np.array([[0.0] * size, [-0.0] * size, [0.0, -0.0] * (size // 2)], F32)
    return out


def cases(size: int) -> Iterator[tuple[str, np.ndarray]]:
    yield from blocks(size).items()


def test_decode_tables() -> None:
    codes = np.arange(256)
    e4m3 = np.array(E4M3 + [np.nan])[codes & 127] * np.where(codes & 128, -1, 1)
    for got in (quant.e4m3(), mx.from_fp8(mx.array(codes.astype(np.uint8)), mx.float32)):
        assert np.array_equal(np.array(got), e4m3.astype(F32), equal_nan=True)
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(e4m3, [0x7F, 0xFF])).all()
    e8m0 = np.array([0.0] + [2.0 ** (b - 127) for b in range(1, 255)] + [np.nan], F32)
    assert np.array_equal(np.array(quant.ue8m0()), e8m0, equal_nan=True)
    nibble = np.array(E2M1 + [-v for v in E2M1], F32)
    assert np.array_equal(np.array(quant.e2m1_pairs()), np.stack([nibble[codes & 15], nibble[codes >> 4]], 1))


@pytest.mark.parametrize("kind", RowKind)
def test_every_bf16_value_is_packed_as_the_rule_says(kind: RowKind) -> None:
    """Codes, signs of zeros, scale bytes; ties to the even code; saturation; what unpack gives back."""
    for name, g in cases(kind.block):
        codes, scales, s = RULES[kind](g)
        if kind is not RowKind.WINDOW:
            codes = codes[:, ::2] | codes[:, 1::2] << 4
        packed = quant.pack(bf16_array(g), kind)
        want = np.concatenate([codes, scales], 1)
        wrong = np.flatnonzero((np.array(packed) != want).any(1))
        assert not len(wrong), f"{name}: {len(wrong)} blocks, the first of them {g[wrong[0]]}"
        if kind is not RowKind.WINDOW:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(g.shape)
        got = flush(np.array(quant.unpack(packed, kind)))
        assert np.array_equal(got, value_of(kind, codes, s)), name


def test_round_trip_is_unpack_of_pack() -> None:
    """The activation quantiser's bfloat16 result is what the stored bytes decode to."""
    for name, g in cases(32):
        codes, _, s = act_quant(g)
        once = quant.round_trip_fp8(bf16_array(g))
        assert np.array_equal(flush(np.array(once.astype(mx.float32))), value_of(RowKind.WINDOW, codes, s)), name


@pytest.mark.parametrize("kind", RowKind)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_block_with_a_non_finite_value_decodes_to_nan(kind: RowKind, bad: float) -> None:
    """Its whole block and no other block; the NaN's payload does not matter."""
    size = kind.block
    rows = np.full((size + 1, 3 * size), 6, F32)
    rows[np.arange(size), size + np.arange(size)] = bad
    got = np.array(quant.unpack(quant.pack(bf16_array(rows), kind), kind))
    assert np.isnan(got[:size, size : 2 * size]).all()
    assert (got[size] == 6).all() and (got[:, :size] == 6).all() and (got[:, 2 * size :] == 6).all()
    if kind is RowKind.WINDOW:
        trip = np.array(quant.round_trip_fp8(bf16_array(rows)).astype(mx.float32))
        assert np.array_equal(trip, got, equal_nan=True)


@pytest.mark.parametrize("kind", RowKind)
def test_every_nan_code_spoils_its_block(kind: RowKind) -> None:
    special = ALL[~np.isfinite(from_bf16(ALL))]
    rows = np.zeros((len(special), kind.block), F32)
    x = np.array(bf16_array(rows).view(mx.uint16))
    x[:, 3] = special
    got = quant.unpack(quant.pack(mx.array(x).view(mx.bfloat16), kind), kind)
    assert np.isnan(np.array(got)).all()


def test_ties_go_to_the_even_code() -> None:
    """The published list for e2m1: 0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2, 3.5 -> 4, 5 -> 4."""
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)
    values = np.array(E2M1)[np.array(quant.e2m1_codes(mx.array(x)))]
    assert values.tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert np.array(quant.e2m1_codes(mx.array(-x))).tolist() == [8 + E2M1.index(v) for v in values]


@pytest.mark.parametrize("decode", ["_decode_bits", "_decode_each"])
def test_decoders_of_weights_give_the_table(decode: str) -> None:
    got = getattr(linear, decode)(mx.array(np.arange(256, dtype=np.uint8)))
    want = np.array(E4M3 + [np.nan])
    want = np.concatenate([want, -want]).astype(F32)
    got = np.array(got.astype(mx.float32))
    assert np.array_equal(got, want, equal_nan=True) and np.array_equal(np.signbit(got[[0, 128]]), [False, True])
