"""Products with packed weights: exact decoding, float32 sums, one rounding; special codes and odd widths."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.ops import OpsBackend, quant
from tensorfold.config import ModelConfig
from tests.support.compare import to_numpy, ulps_bf16
from tests.support.goldens import EXAMPLE

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3 = np.array(quant.e4m3()).astype(np.float64)  # test_quant.py holds the table to the definition


class Weights:
    """A weight source of one matrix `w`, or of experts `e.0` .. of matrices w1, w2, w3."""

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.tensors = tensors

    def raw(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def array(self, name: str) -> mx.array:
        return mx.array(self.tensors[name])

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)


@pytest.fixture(scope="module")
def backend() -> OpsBackend:
    return OpsBackend(ModelConfig.from_folder(EXAMPLE))


def random_codes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """All codes but the NaNs."""
    codes = rng.integers(0, 254, shape, dtype=np.uint8)
    return np.where(codes >= 127, codes + 1, codes).astype(np.uint8)


def value8(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 matrix of e4m3 codes [N, K] and UE8M0 bytes [ceil(N/32), K/32]; byte 0 is zero, 255 NaN."""
    s = np.where(scales == 0, 0.0, np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(int) - 127)))
    return E4M3[codes] * s.repeat(32, 0)[: codes.shape[0]].repeat(32, 1)


def product(x: mx.array, matrix: np.ndarray) -> np.ndarray:
    """float64 sums rounded to float32; the caller rounds to bfloat16 by MLX."""
    return (to_numpy(x).astype(np.float64) @ matrix.T).astype(np.float32)


def close(got: mx.array, x: mx.array, matrix: np.ndarray) -> None:
    """Within one bfloat16 step of the product rounded once; where terms cancel, within the float32 error of K sums."""
    want = product(x, matrix)
    size = np.abs(to_numpy(x)).astype(np.float64) @ np.abs(matrix).T
    slack = np.abs(to_numpy(got) - want) <= matrix.shape[1] * 2.0**-24 * size
    step = ulps_bf16(got, mx.array(want).astype(mx.bfloat16)) <= 1
    assert (step | slack).all() and step.mean() > 0.999
    assert (ulps_bf16(got, mx.array(want).astype(mx.bfloat16)) == 0).mean() > 0.99


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 95])
@pytest.mark.parametrize("k", [32, 96, 512])
def test_fp8_product_is_rounded_once(backend: OpsBackend, n: int, k: int) -> None:
    rng = np.random.default_rng(n * k)
    codes, scales = random_codes(rng, n, k), rng.integers(115, 125, (-(-n // 32), k // 32), dtype=np.uint8)
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"])
    x = backend.act_quant_fp8(mx.array(rng.standard_normal((7, k)).astype(np.float32)).astype(mx.bfloat16))
    got = backend.matvec_fp8(x, weight)
    assert got.shape == (7, n) and got.dtype == mx.bfloat16
    close(got, x, value8(codes, scales))


@pytest.mark.parametrize("exponent", [-31, 0, 100])
@pytest.mark.parametrize("first, last", [(32, 127), (0, 254)], ids=["folded", "every"])
def test_every_code_under_every_scale_byte(backend: OpsBackend, first: int, last: int, exponent: int) -> None:
    """One term a sum, so the result is exact where bfloat16 holds it; inputs from the least that act_quant leaves."""
    k, each = 1024, np.arange(256)
    scales = (first + each.reshape(8, 32) % (last - first + 1)).astype(np.uint8)  # by blocks of rows and K
    codes = (each[:, None] % 32 + 32 * (np.arange(k) % 32 % 8)).astype(np.uint8)  # all codes in every block
    codes = np.where(codes & 127 == 127, 0, codes)
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"])
    one = np.arange(k)[np.arange(k) % 32 < 8]
    x = np.zeros((len(one), k), np.float32)
    x[np.arange(len(one)), one] = 2.0**exponent
    got = to_numpy(backend.matvec_fp8(mx.array(x).astype(mx.bfloat16), weight))
    want = (value8(codes, scales)[:, one] * 2.0**exponent).T
    want = np.where(np.abs(want) < 2.0**128, want, np.copysign(np.inf, want))
    small = np.abs(want) < 2.0**-126
    assert np.array_equal(got[~small], want[~small]) and (np.abs(got[small]) < 2.0**-126).all()


@pytest.mark.parametrize("first, last, size", [(14, 24, 2.0**-14), (120, 160, 1.0), (248, 253, 8.0), (1, 253, 8.0)])
def test_fp8_product_under_extreme_scales_is_rounded_once(
    backend: OpsBackend, first: int, last: int, size: float
) -> None:
    """Activations times scales are out of bfloat16's range, products with small codes are not."""
    rng = np.random.default_rng(first)
    codes, scales = random_codes(rng, 96, 96), rng.integers(first, last + 1, (3, 3), dtype=np.uint8)
    codes &= 0x87 if last > 200 else 0xFF
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"])
    x = backend.act_quant_fp8(mx.array((size * rng.standard_normal((7, 96))).astype(np.float32)).astype(mx.bfloat16))
    got = backend.matvec_fp8(x, weight)
    close(got, x, value8(codes, scales))
    assert all(mx.array_equal(backend.matvec_fp8(x[i : i + 1], weight)[0], got[i]).item() for i in range(7))


def test_the_least_input_of_folded_scales_is_what_act_quant_leaves(backend: OpsBackend) -> None:
    left = to_numpy(backend.act_quant_fp8((1.5 * 2.0 ** -mx.arange(64)).astype(mx.bfloat16)[None]))
    assert left[left > 0].min() == 2.0**-31


@pytest.mark.parametrize("last", [124, 160])
def test_grouped_product_takes_unquantised_inputs(backend: OpsBackend, last: int) -> None:
    rng = np.random.default_rng(5)
    groups, rows, k = 4, 32, 64
    codes, scales = random_codes(rng, groups * rows, k), rng.integers(115, last + 1, (groups, k // 32), dtype=np.uint8)
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"], groups=groups)
    x = mx.array(rng.standard_normal((5, groups * k)).astype(np.float32)).astype(mx.bfloat16)
    got, matrix = backend.matvec_fp8(x, weight), value8(codes, scales)
    for g in range(groups):
        own = slice(g * rows, (g + 1) * rows)
        close(got[:, own], x[:, g * k : (g + 1) * k], matrix[own])


def test_stacked_matrices_and_their_parts_are_the_single_ones(backend: OpsBackend) -> None:
    rng = np.random.default_rng(6)
    tensors: dict[str, np.ndarray] = {}
    for name, n in (("a", 64), ("b", 96)):
        tensors[f"{name}.weight"] = random_codes(rng, n, 64)
        tensors[f"{name}.scale"] = rng.integers(115, 125, (n // 32, 2), dtype=np.uint8)
    source = Weights(tensors)
    x = mx.array(rng.standard_normal((3, 64)).astype(np.float32)).astype(mx.bfloat16)
    both, a, b = (backend.load_fp8(source, names) for names in (["a", "b"], ["a"], ["b"]))
    whole = backend.matvec_fp8(x, both)
    assert mx.array_equal(whole, mx.concatenate([backend.matvec_fp8(x, w) for w in (a, b)], -1)).item()
    assert mx.array_equal(whole[:, 64:], backend.matvec_fp8(x, backend.rows_of(both, 64, 96))).item()
    with pytest.raises(ValueError, match=r"c\.weight: 33 rows cannot be stacked"):
        odd = {"c.weight": np.zeros((33, 64), np.uint8), "c.scale": np.zeros((2, 2), np.uint8)}
        backend.load_fp8(Weights({**tensors, **odd}), ["c", "a"])


def test_special_scale_bytes_of_fp8(backend: OpsBackend) -> None:
    """Byte 0 makes its tile zero, 255 makes the rows that use it NaN, whatever the codes; others stay as they were."""
    rng = np.random.default_rng(7)
    codes, scales = random_codes(rng, 96, 64), np.full((3, 2), 120, np.uint8)
    scales[0, 1], scales[1, 0] = 0, 255
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"])
    x = mx.array(rng.standard_normal((4, 64)).astype(np.float32)).astype(mx.bfloat16)
    got, matrix = backend.matvec_fp8(x, weight), value8(codes, scales)
    close(got[:, :32], x, matrix[:32])
    close(got[:, 64:], x, matrix[64:])
    assert np.isnan(to_numpy(got)[:, 32:64]).all()
    zero = backend.load_fp8(Weights({"w.weight": codes, "w.scale": np.zeros((3, 2), np.uint8)}), ["w"])
    assert (to_numpy(backend.matvec_fp8(x, zero)) == 0).all()


@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("byte", [0, 120])
def test_nan_codes_of_fp8(backend: OpsBackend, code: int, byte: int) -> None:
    """One NaN code spoils its row of the result, under scale zero as well."""
    codes = random_codes(np.random.default_rng(8), 64, 64)
    codes[17, 40] = code
    scales = np.full((2, 2), 120, np.uint8)
    scales[0, 1] = byte
    weight = backend.load_fp8(Weights({"w.weight": codes, "w.scale": scales}), ["w"])
    got = to_numpy(backend.matvec_fp8(mx.ones((2, 64), mx.bfloat16), weight))
    assert np.array_equal(np.isnan(got), np.tile(np.arange(64) == 17, (2, 1)))


# ---- experts


def experts(rng: np.random.Generator, count: int, n: int, k: int, scale: np.ndarray) -> dict[str, np.ndarray]:
    """Matrices w1, w3 [n, k] and w2 [k, n] of `count` experts; `scale` [n, k/32] are the bytes of w1."""
    out = {}
    for e in range(count):
        for matrix, (rows, columns) in {"w1": (n, k), "w2": (k, n), "w3": (n, k)}.items():
            out[f"e.{e}.{matrix}.weight"] = rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
            bytes_ = scale if matrix == "w1" else np.full((rows, columns // 32), 122, np.uint8)
            out[f"e.{e}.{matrix}.scale"] = bytes_.astype(np.uint8)
    return out


def value4(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    nibbles = E2M1[np.stack([codes & 15, codes >> 4], -1)].reshape(len(codes), -1)
    s = np.where(scales == 0, 0.0, np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(int) - 127)))
    return nibbles * s.repeat(32, 1)


def gathered(backend: OpsBackend, tensors: dict[str, np.ndarray], x: mx.array, ids: np.ndarray) -> mx.array:
    weight = backend.load_experts(Weights(tensors), "e", 3)
    both = backend._matrices.gathered_fp4(x[:, None], mx.array(ids.astype(np.int32)), weight.w13)
    return mx.split(both, 2, -1)[0]


def test_gathered_fp4_product_is_rounded_once(backend: OpsBackend) -> None:
    """Each row by its own experts; all nibbles; scale byte 0 is zero, not 2^-127, even beside large inputs."""
    rng = np.random.default_rng(9)
    n, k = 40, 96
    scale = rng.integers(115, 125, (n, k // 32))
    scale[3, 1] = scale[7, :] = 0
    tensors = experts(rng, 3, n, k, scale)
    x = mx.array((rng.standard_normal((5, k)) * 2.0**9).astype(np.float32)).astype(mx.bfloat16)
    ids = np.array([[0, 2], [1, 2], [0, 1], [2, 0], [1, 1]])
    got = gathered(backend, tensors, x, ids)
    assert got.shape == (5, 2, n)
    for r in range(5):
        for j in range(2):
            own = (tensors[f"e.{ids[r, j]}.w1.{leaf}"] for leaf in ("weight", "scale"))
            close(got[r : r + 1, j], x[r : r + 1], value4(*own))
    assert (to_numpy(got)[:, :, 7] == 0).all()


def test_scale_byte_255_of_fp4_is_nan(backend: OpsBackend) -> None:
    """Whatever codes stand under it: its row of the result is NaN and no other row is."""
    rng = np.random.default_rng(10)
    scale = np.full((40, 3), 120)
    scale[11, 2] = 255
    tensors = experts(rng, 3, 40, 96, scale)
    for e, fill in enumerate((None, 0x22, 0x00)):  # mixed codes, all of them one, all of them zero
        if fill is not None:
            tensors[f"e.{e}.w1.weight"][11] = fill
    x = mx.abs(mx.array(rng.standard_normal((2, 96)).astype(np.float32))).astype(mx.bfloat16)
    got = to_numpy(gathered(backend, tensors, x, np.array([[0, 1], [1, 2]])))
    assert np.array_equal(np.isnan(got), np.broadcast_to(np.arange(40) == 11, got.shape)), got[..., 11]
