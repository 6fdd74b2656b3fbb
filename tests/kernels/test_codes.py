"""FP8, FP4 and power-of-two codes against definitions written out in float64, over every code and every bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.proof.numerics import codes
from tensorfold.proof.numerics.exact import from_bits
from tests.support.hostkit import needs_clang, probe, run_probe

EVERY_BF16 = from_bits(np.arange(1 << 16, dtype=np.uint32) << 16)


def _grid(kind: str) -> list[float]:
    """Magnitudes of the finite codes, ascending, from the formats' definitions."""
    if kind == "e2m1":
        return [(m / 2) if e == 0 else (1 + m / 2) * 2.0 ** (e - 1) for e in range(4) for m in range(2)]
    return [(m / 8) * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]


def _nearest(values: np.ndarray, grid: list[float]) -> np.ndarray:
    """Index of the nearest magnitude, ties to the even index, beyond the last one clamped."""
    table = np.array(grid)
    v = np.minimum(np.abs(values.astype(np.float64)), table[-1])
    above = np.clip(np.searchsorted(table, v), 1, len(table) - 1)
    low, high = v - table[above - 1], table[above] - v
    return np.where(low < high, above - 1, np.where(low > high, above, above - (above % 2)))


def _trial_values() -> np.ndarray:
    """Every bfloat16 but NaN, every tie and its neighbours, in float32."""
    ties = [(a + b) / 2 for kind in ("e2m1", "e4m3") for a, b in zip(_grid(kind), _grid(kind)[1:])]
    t = np.array([*ties, 448, 464, 6, 7, 0.0], np.float32)
    near = np.concatenate([t, np.nextafter(t, np.float32(np.inf)), np.nextafter(t, np.float32(0))])
    finite = EVERY_BF16[~np.isnan(EVERY_BF16)]
    both = np.concatenate([finite, near, -near])
    return np.concatenate([both, np.zeros(-len(both) % 32, np.float32)])


@pytest.mark.parametrize("kind, sign_bit", [("e4m3", 0x80), ("e2m1", 8)])
def test_encoder_is_nearest_even(kind: str, sign_bit: int) -> None:
    x = _trial_values()
    wanted = _nearest(x, _grid(kind)) | np.where(np.signbit(x), sign_bit, 0)
    assert np.array_equal(getattr(codes, f"to_{kind}")(x), wanted)


def test_decoders_follow_the_definitions() -> None:
    for kind, table, sign_bit in (("e4m3", codes.E4M3, 0x80), ("e2m1", codes.E2M1, 8)):
        grid = np.array(_grid(kind), np.float32)
        assert np.array_equal(table[: len(grid)], grid)
        assert np.array_equal(table[sign_bit : sign_bit + len(grid)], -grid)
        assert np.signbit(table[sign_bit])
    assert np.isnan(codes.E4M3[[0x7F, 0xFF]]).all()
    assert np.array_equal(codes.UE8M0[1:255], np.exp2(np.arange(-126, 128)).astype(np.float32))
    assert codes.UE8M0[0] == 0 and np.isnan(codes.UE8M0[255])


def test_special_inputs() -> None:
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32)
    assert codes.to_e4m3(special).tolist() == [0x7F, 0x7E, 0xFE, 0x80, 0]
    assert codes.to_e2m1(special).tolist() == [7, 7, 15, 8, 0]
    assert codes.ceil_ue8m0(np.array([1.0, 1.0000001, 2.0**-126, 3e38, np.inf, np.nan], np.float32)).tolist() == [
        127, 128, 1, 255, 255, 255,
    ]  # fmt: skip


def test_codes_round_trip() -> None:
    finite = np.array([c for c in range(256) if c & 127 != 127], np.uint8)
    assert np.array_equal(codes.to_e4m3(codes.E4M3[finite]), finite)
    assert np.array_equal(codes.to_e2m1(codes.E2M1), np.arange(16))
    assert np.array_equal(codes.ceil_ue8m0(codes.UE8M0[1:255]), np.arange(1, 255))
    nibbles = np.arange(64, dtype=np.uint8).reshape(4, 16) & 15
    assert np.array_equal(codes.unpack_nibbles(codes.pack_nibbles(nibbles)), nibbles)
    assert codes.pack_nibbles(np.array([3, 10], np.uint8)).tolist() == [0xA3]


@needs_clang
@pytest.mark.parametrize("flush", [False, True])
def test_compiled_encoders(flush: bool, tmp_path: Path) -> None:
    body = "a[i] = p_to_e4m3(x[i]); b[i] = p_to_e2m1(x[i]); c[i] = p_ceil_ue8m0(p_load(x[i]));"
    kernel = probe(tmp_path, "codes.h", body, {"x": "float"}, {"a": "uint", "b": "uint", "c": "uint"})
    x = np.concatenate([_trial_values(), EVERY_BF16])
    a, b, c = run_probe(kernel, x, flush=flush)
    assert np.array_equal(a, codes.to_e4m3(x)) and np.array_equal(b, codes.to_e2m1(x))
    normal = ~((np.abs(x) < 2.0**-126) & (x != 0))
    assert np.array_equal(c[normal], codes.ceil_ue8m0(x)[normal])


@needs_clang
@pytest.mark.parametrize("flush", [False, True])
def test_compiled_decoders(flush: bool, tmp_path: Path) -> None:
    body = "a[i] = p_bits(p_e4m3(u[i])); b[i] = p_bits(p_e2m1(u[i])); c[i] = p_bits(p_ue8m0(u[i]));"
    kernel = probe(tmp_path, "codes.h", body, {"u": "uint"}, {"a": "uint", "b": "uint", "c": "uint"})
    u = np.arange(256, dtype=np.uint32)
    a, b, c = (np.asarray(v).view(np.float32) for v in run_probe(kernel, u, flush=flush))
    for got, wanted in ((a, codes.E4M3), (b, np.tile(codes.E2M1, 16)), (c, codes.UE8M0)):
        assert np.array_equal(got, wanted, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(wanted))


@needs_clang
def test_loads_and_stores_flush_and_round(tmp_path: Path) -> None:
    from tensorfold.proof.numerics.exact import load, store_bf16, store_f32

    body = "p_store(a + i, x[i]); p_store(b + i, x[i]); c[i] = p_bits(p_load(z[i])); d[i] = p_bits(p_load(x[i]));"
    outputs = {"a": "float", "b": "bfloat16_t", "c": "uint", "d": "uint"}
    kernel = probe(tmp_path, "portable.h", body, {"x": "float", "z": "bfloat16_t"}, outputs)
    draw = np.random.default_rng(3)
    x = draw.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x[:8] = [2.0**-126, 1.1754942e-38, -1e-40, 3.4028235e38, np.inf, np.nan, -0.0, 1.00390625]
    z = np.arange(1 << 16, dtype=np.uint16)
    for flush in (False, True):
        a, b, c, d = run_probe(kernel, x, z, flush=flush)
        assert a.tobytes() == store_f32(x).tobytes() and b.tobytes() == store_bf16(x).tobytes()
        assert c.tobytes() == load(z).tobytes() and d.tobytes() == load(x).tobytes()
