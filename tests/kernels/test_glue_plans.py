"""Shapes that do not fit are refused by name before anything is launched, and a row count never leaves a row out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.proof import families


def _half(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.uint16)


def _float(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


ONE = _float(1)
STREAMS = (_half(2, 4, 64), _float(2, 4), _float(2, 4, 4))
MIX = (_float(24), _float(3), ONE, ONE)
MISFITS = [
    ("embed", (np.zeros((2, 1), np.int32), _half(8, 64)), {}),
    ("hc_mean", (_half(2, 64),), {}),
    ("hc_post", (_half(2, 64), _half(3, 4, 64), _float(3, 4), _float(3, 4, 4)), {}),
    ("hc_post", (_half(3, 64), _half(3, 4, 64), _float(3, 4), _float(3, 16)), {}),
    ("hc_post_dots", (_half(2, 64), _half(3, 4, 64), _float(3, 4), _float(3, 4, 4), _float(24, 256)), {}),
    ("hc_post_dots", (_half(3, 64), _half(3, 4, 64), _float(3, 4), _float(3, 4, 4), _float(24, 64)), {}),
    ("hc_collapse_norm", (_half(2, 4, 64), _float(2, 3), _half(64), ONE), {}),
    ("hc_collapse_norm", (_half(2, 4, 64), _float(2, 4), _half(32), ONE), {}),
    ("hc_dots", (_half(2, 4, 64), _float(24, 64)), {}),
    ("hc_mix", (_float(2, 1, 24), _float(24), _float(3), ONE, ONE), {"width": 256}),
    ("hc_mix", (_float(2, 1, 25), _float(24), _float(3), ONE, ONE), {"width": 256, "iterations": 0}),
    ("hc_enter", (_float(3, 1, 25), *MIX, _half(2, 4, 64), _float(2, 4), _half(64)), {"width": 256}),
    ("hc_enter", (_float(2, 1, 25), *MIX, _half(2, 4, 48), _float(2, 4), _half(48)), {"width": 192}),
    ("hc_enter", (_float(2, 1, 24), *MIX, _half(2, 4, 64), _float(2, 4), _half(64)), {"width": 256}),
    ("moe_join", (_half(2, 3, 64), _half(2, 32)), {}),
    ("moe_leave", (_half(2, 3, 32), _half(2, 64), *STREAMS), {}),
    ("moe_leave", (_half(2, 3, 64), _half(2, 64), _half(3, 4, 64), _float(3, 4), _float(3, 4, 4)), {}),
    ("moe_leave_dots", (_half(2, 3, 32), _half(2, 64), *STREAMS, _float(24, 256)), {}),
    ("moe_leave_dots", (_half(2, 3, 64), _half(2, 64), *STREAMS, _float(24, 257)), {}),
    ("swiglu_weighted", (_half(2, 3, 64), _half(2, 3, 64), _float(3, 2), ONE), {}),
    ("swiglu_weighted", (_half(2, 3, 64), _half(2, 64), ONE, ONE), {"weighted": False}),
]


@pytest.mark.parametrize("name, arrays, options", MISFITS)
def test_misfits_are_refused(name: str, arrays: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=name):
        families.get(name).kernel.launch(arrays, None, **options)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 11, 12, 13, 16, 37, 512])
def test_threadgroups_of_several_rows_cover_every_row_once(rows: int) -> None:
    dots, mix = families.get("hc_dots").kernel, families.get("hc_mix").kernel
    arrays = {"hc_dots": (_half(rows, 4, 40), _float(24, 160)),
              "hc_mix": (_float(rows, 1, 25), _float(24), _float(3), ONE, ONE)}  # fmt: skip
    for kernel, options in ((dots, {}), (mix, {"width": 160})):
        for geometry in kernel.geometries:
            launch = kernel.launch(arrays[kernel.name], geometry, **options)
            assert launch.grid[1] == rows and rows % launch.threadgroup[1] == 0
            assert launch.threadgroup[1] <= geometry["height"]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 12, 16, 37])
@pytest.mark.parametrize("name", ["hc_post_dots", "moe_leave_dots"])
def test_rows_that_share_factors_are_each_made_once(name: str, rows: int) -> None:
    streams = _half(rows, 4, 64), _float(rows, 4), _float(rows, 4, 4), _float(24, 256)
    before = (_half(rows, 64),) if name == "hc_post_dots" else (_half(rows, 3, 64), _half(rows, 64))
    kernel = families.get(name).kernel
    for geometry in kernel.geometries:
        launch = kernel.launch((*before, *streams), geometry)
        height = launch.template["H"]
        assert isinstance(height, int) and height <= geometry["height"]
        assert launch.grid[1] * height == rows and launch.threadgroup[1] == 1
