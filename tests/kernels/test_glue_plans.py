"""Shapes that do not fit are refused by name before anything is launched, and a row count never leaves a row out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold import kernels


def _half(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.uint16)


def _float(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


ONE = _float(1)
MISFITS = [
    ("embed", (np.zeros((2, 1), np.int32), _half(8, 64)), {}),
    ("hc_mean", (_half(2, 64),), {}),
    ("hc_post", (_half(2, 64), _half(3, 4, 64), _float(3, 4), _float(3, 4, 4)), {}),
    ("hc_post", (_half(3, 64), _half(3, 4, 64), _float(3, 4), _float(3, 16)), {}),
    ("hc_collapse_norm", (_half(2, 4, 64), _float(2, 3), _half(64), ONE), {}),
    ("hc_collapse_norm", (_half(2, 4, 64), _float(2, 4), _half(32), ONE), {}),
    ("hc_dots", (_half(2, 4, 64), _float(24, 64)), {}),
    ("hc_mix", (_float(2, 1, 24), _float(24), _float(3), ONE, ONE), {"width": 256}),
    ("hc_mix", (_float(2, 1, 25), _float(24), _float(3), ONE, ONE), {"width": 256, "iterations": 0}),
    ("moe_join", (_half(2, 3, 64), _half(2, 32)), {}),
    ("swiglu_weighted", (_half(2, 3, 64), _half(2, 3, 64), _float(3, 2), ONE), {}),
    ("swiglu_weighted", (_half(2, 3, 64), _half(2, 64), ONE, ONE), {"weighted": False}),
]


@pytest.mark.parametrize("name, arrays, options", MISFITS)
def test_misfits_are_refused(name: str, arrays: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=name):
        kernels.get(name).launch(arrays, None, **options)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 11, 12, 13, 16, 37, 512])
def test_threadgroups_of_several_rows_cover_every_row_once(rows: int) -> None:
    dots, mix = kernels.get("hc_dots"), kernels.get("hc_mix")
    arrays = {"hc_dots": (_half(rows, 4, 40), _float(24, 160)),
              "hc_mix": (_float(rows, 1, 25), _float(24), _float(3), ONE, ONE)}  # fmt: skip
    for kernel, options in ((dots, {}), (mix, {"width": 160})):
        for geometry in kernel.geometries:
            launch = kernel.launch(arrays[kernel.name], geometry, **options)
            assert launch.grid[1] == rows and rows % launch.threadgroup[1] == 0
            assert launch.threadgroup[1] <= geometry["height"]
