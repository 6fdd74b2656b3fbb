"""The quantisers' and the router's contract cases meet what they promise, and arrays that do not fit are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.proof import families
from tensorfold.proof.numerics.codes import E2M1, E4M3, UE8M0, unpack_nibbles
from tensorfold.proof.numerics.exact import load, store_bf16, wide

FAMILIES = ("act_quant_fp8", "act_quant_fp4_e8m0", "act_quant_fp4_e4m3")


def _outputs(name: str, case: str) -> list[np.ndarray]:
    proof = families.get(name)
    found = next(c for c in proof.cases() if c.name == case)
    return list(proof.reference(*found.arrays, **found.options))


def test_every_fp8_code_at_the_smallest_and_largest_scales() -> None:
    codes, scales = _outputs("act_quant_fp8", "every code")
    for byte in (105, 127, 245):
        here = codes.reshape(*scales.shape, 32)[scales == byte]
        assert set(here.ravel().tolist()) == set(range(256)) - {0x7F, 0xFF}


def test_every_fp4_code_at_every_scale() -> None:
    for name, block, wanted in (
        # below scale byte 2 halves would be subnormal inputs, which count as zero
        ("act_quant_fp4_e8m0", 32, [7, 124, 127, 227, 251]),
        ("act_quant_fp4_e4m3", 16, list(range(1, 127))),
    ):
        packed, scales = _outputs(name, "every code")
        codes = unpack_nibbles(packed).reshape(*scales.shape, block)
        for scale in wanted:
            assert set(codes[scales == scale].ravel().tolist()) == set(range(16)), (name, scale)


@pytest.mark.parametrize(
    "name, block, values, scales",
    [
        ("act_quant_fp8", 32, E4M3[:127], UE8M0),
        ("act_quant_fp4_e8m0", 32, E2M1[:8], UE8M0),
        ("act_quant_fp4_e4m3", 16, E2M1[:8], E4M3),
    ],
)
def test_every_tie_and_its_neighbours_are_met(name: str, block: int, values: np.ndarray, scales: np.ndarray) -> None:
    x = next(c for c in families.get(name).cases() if c.name == "every code").arrays[0]
    held = scales[families.get(name).reference(x)[1]]
    at_one = (load(x).reshape(*held.shape, block))[held == 1].ravel()
    ties = store_bf16((values[1:] + values[:-1]) / 2).astype(np.int64)
    wanted = set(np.concatenate([ties - 1, ties, ties + 1]).tolist())
    for sign in (1, -1):
        assert wanted <= set(store_bf16(sign * at_one).tolist())


def test_ties_of_the_e4m3_scale_and_saturation_are_met() -> None:
    _, scales = _outputs("act_quant_fp4_e4m3", "every tie of the scale")
    assert set(scales.ravel().tolist()) == set(range(1, 127))


@pytest.mark.parametrize("name, nan", list(zip(FAMILIES, (255, 255, 0x7F))))
def test_a_value_that_is_not_finite_makes_its_block_nan(name: str, nan: int) -> None:
    proof, x = families.get(name), np.full((4, 64), 0x3F80, np.uint16)
    x[0, 3], x[1, 40], x[2, 0], x[:, 1] = 0x7F80, 0xFFC1, 0xFF80, 0xBF80
    codes, scales = proof.reference(x)
    held = scales.reshape(4, 2, -1)
    assert ((held == nan).sum(-1) == [[1, 0], [0, 1], [1, 0], [0, 0]]).all()
    (y,) = families.get(f"{name}_round").reference(x)
    block = 64 // scales.shape[1]
    assert (np.isnan(y).reshape(4, -1, block).all(-1) == (scales == nan)).all()
    assert (np.isnan(y).sum(-1) == [block, block, block, 0]).all()


@pytest.mark.parametrize("name, smallest", list(zip(FAMILIES, (105, 1, 1))))
def test_zeros_have_the_smallest_scale_and_keep_their_sign(name: str, smallest: int) -> None:
    x = np.array([[0x0000, 0x8000] * 32, [0x0001, 0x8001] * 32], np.uint16)
    _, scales = families.get(name).reference(x)
    (y,) = families.get(f"{name}_round").reference(x)
    assert (scales == smallest).all()
    assert (y == 0).all() and (np.signbit(y) == (x > 0x7FFF)).all()


@pytest.mark.parametrize("name", FAMILIES[:2])
def test_rounding_again_changes_nothing(name: str) -> None:
    proof = families.get(f"{name}_round")
    x = next(c for c in proof.cases() if c.name == "heads").arrays[0]
    (once,) = proof.stated(x)
    assert np.array_equal(proof.stated(once)[0], once)


def test_float64_scores_choose_the_same_experts_where_nothing_is_tied() -> None:
    seen = 0
    for case in families.get("route").cases():
        if " of " not in case.name:
            continue
        logits, bias, _ = (wide(a) for a in case.arrays)
        total = np.sqrt(np.log1p(np.exp(logits))) + bias
        k = case.options["k"]
        best = np.sort(np.argsort(-total, axis=-1)[:, :k], -1)
        assert np.array_equal(best, families.get("route").reference(*case.arrays, **case.options)[0]), case.name
        seen += 1
    assert seen == 7


def test_tied_experts_go_to_the_lower_id() -> None:
    logits = np.zeros((1, 12), np.float32)
    logits[0, [3, 9]] = 1.0
    ids, weights = families.get("route").stated(logits, np.zeros(12, np.float32), np.ones(1, np.float32), k=4)
    assert ids.tolist() == [[0, 1, 3, 9]]
    assert abs(float(load(weights).sum()) - 1) < 1e-6


@pytest.mark.parametrize(
    "name, shapes, options, words",
    [
        ("act_quant_fp8", [(2, 48)], {}, "multiple of 32"),
        ("act_quant_fp4_e8m0_pack", [(2, 48)], {}, "multiple of 32"),
        ("act_quant_fp4_e4m3_round", [(2, 24)], {}, "multiple of 16"),
        ("act_quant_fp8", [(64,)], {}, r"\[\.\.\., K\]"),
        ("engram_rows", [(2, 3, 48), (2, 3, 1)], {}, "do not fit"),
        ("engram_rows", [(2, 3, 64), (2, 3, 1)], {}, "do not fit"),
        ("engram_inject", [(2, 4, 64), (2, 256), (4, 64), (4, 64), (1,), (1,)], {}, "expected"),
        ("route", [(2, 8), (7,), (1,)], {"k": 2}, "expected"),
        ("route", [(2, 8), (8,), (1,)], {"k": 9}, "a k of 1 to 8"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, shapes: list[Any], options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*{words}"):
        families.get(name).kernel.launch([np.zeros(s, np.uint16) for s in shapes], None, **options)
