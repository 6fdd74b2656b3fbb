"""Plans of matrix times few rows: every row is written once, geometry fits every shape, misfits are refused."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels import get
from tensorfold.kernels.matvec import geometry as table
from tensorfold.kernels.matvec import matvec_fp8
from tensorfold.proof import families
from tensorfold.proof.contract.value import outside
from tensorfold.proof.families.matvec import cases
from tensorfold.proof.host import run_host
from tensorfold.proof.numerics.inputs import Draw
from tests.support.hostkit import needs_clang

SHAPES = [(32768, 1280), (36864, 1280), (5120, 8192), (1792, 5120), (4608, 5120), (5120, 2304), (25600, 6144), (96, 96)]


@pytest.mark.parametrize("rows", range(1, 65))
def test_groups_of_rows_write_each_row_once(rows: int) -> None:
    """The twin of first_rows, second_rows and write_sum in tile.h."""
    r = table.rows_at_once(rows)
    half, written = (r + 1) // 2, []
    for group in range(-(-rows // r)):
        first = min(group * r, rows - r) if rows >= r else 0
        second = first + half if rows >= r else rows - r // 2
        for i in range(r):
            row = first + i if i < half else second + i - half
            assert 0 <= row < rows
            if row >= group * r and (i < half or row >= first + half):
                written.append(row)
    assert sorted(written) == list(range(rows))


def test_decode_rows_need_four_programs() -> None:
    assert {table.rows_at_once(rows) for rows in range(1, 17)} == {1, 4, 6, 8}


@pytest.mark.parametrize("backend", ["cuda", "metal", "host"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_choice_fits_its_address(shape: tuple[int, int], backend: str) -> None:
    n, k = shape
    kernel = get("matvec_fp8")
    arrays = [np.empty((n, k), np.uint8), np.empty((-(-n // 32), k // 32), np.uint8)]
    for rows in range(1, 17):
        x = np.empty((rows, 4, k // 16, 4), np.float32)
        for width in (8, 16):
            geometry = kernel.geometry(backend, [*arrays, x], width=width)
            assert geometry["W"] == width
            plan = kernel.plan([*arrays, x], geometry, width=width)
            assert plan.template["LK"] * plan.template["SW"] == table.running_sums(k, 16)
            assert plan.threadgroup[0] <= 1024 and k // 16 % (plan.template["PF"] * table.running_sums(k, 16)) == 0


@pytest.mark.parametrize("backend", ["cuda", "metal", "host"])
@pytest.mark.parametrize("n, k, groups", [(8192, 4096, 8), (256, 1024, 4), (128, 128, 4), (160, 64, 1)])
def test_a_quantising_threadgroup_owns_whole_blocks_of_one_group(n: int, k: int, groups: int, backend: str) -> None:
    kernel = get("matvec_fp8_quantised")
    for rows in range(1, 17):
        arrays = [
            np.empty((n, k), np.uint8),
            np.empty((n // 32, k // 32), np.uint8),
            np.empty((rows, groups * k), np.uint16),
        ]
        chosen = kernel.geometry(backend, arrays)
        for geometry in (chosen, *kernel.geometries):
            t: dict[str, Any] = dict(kernel.plan(arrays, geometry).template)
            assert t["WN"] * (32 // t["LK"]) * t["TN"] % 32 == 0 and n // groups % t["TN"] == 0
            assert kernel.plan(arrays, geometry).threadgroup[0] <= 512
        # the table of matvec_fp8, wherever its lanes and rows are
        wanted = table.FP8[table.choose_fp8(backend, arrays)]
        assert all(chosen[key] == wanted[key] for key in ("LK", "TN", "PF", "DB"))


def test_misfits_are_refused() -> None:
    kernel = get("matvec_fp8")
    w, s = np.zeros((64, 256), np.uint8), np.zeros((2, 8), np.uint8)
    good = np.zeros((2, 256), np.uint16)
    with pytest.raises(ValueError, match="expected K = 256 and scales"):
        kernel.launch([w, s[:1], good])
    with pytest.raises(ValueError, match="rows of x have 255"):
        kernel.launch([w, s, good[:, :255]])
    with pytest.raises(ValueError, match="float planes"):
        kernel.launch([w, s, np.zeros((2, 16, 4, 4), np.float32)])
    with pytest.raises(ValueError, match="only 8 divides"):
        kernel.plan([w, s, good], table.FP8[1], width=8)
    with pytest.raises(ValueError, match="load width 4, expected 8 or 16"):
        kernel.launch([w, s, good], width=4)
    with pytest.raises(ValueError, match="matvec_fp8_quantised: 40 rows of w in 1 groups"):
        get("matvec_fp8_quantised").launch([w[:40], s, good])
    with pytest.raises(ValueError, match="4 matrices, expected 1 or 2"):
        matvec_fp8([(mx.zeros((32, 32)), mx.zeros((1, 1)))] * 4, mx.zeros((1, 32)), backend="host")


@needs_clang
@pytest.mark.parametrize("k", [6144, 15360])
def test_the_widest_rows_in_use_have_the_stated_bits(k: int) -> None:
    """Of Engram's matrix and the drafter's: too wide for the contract's many runs."""
    proof, draw = families.get("matvec_fp8"), Draw(k)
    arrays = (*cases.matrix(draw, 65, k), cases.activations(draw, 1, k, False))
    (got,) = run_host(proof.kernel, arrays, proof.kernel.launch(arrays))
    assert got.tobytes() == proof.stated(*arrays)[0].tobytes()
    assert outside(proof.bound, [got], proof.reference(*arrays), arrays, {})[0] == []
