"""Routed and shared experts in one launch: the bits of the launches apart, every tile computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.kernels import Kernel, Launch
from tensorfold.kernels.matvec.geometry import rows_at_once
from tensorfold.kernels.moe_matrices import plan
from tensorfold.proof import families
from tensorfold.proof.host import run_host
from tests.support.hostkit import needs_clang

APART = {"moe_up": ("experts_up", "matvec_fp8_pair"), "moe_down": ("experts_down", "matvec_fp8")}
SHARED = {"moe_up": plan.shared_up, "moe_down": plan.shared_down}
NAMES = sorted(APART)


def shapes(name: str, rows: int, hidden: int, inner: int, picks: int) -> tuple[tuple[Any, ...], int]:
    """(inputs without values, n) of a layer of these sizes."""

    def planes(*shape: int) -> np.ndarray[Any, Any]:
        return np.empty((*shape[:-1], 4, shape[-1] // 16, 4), np.float32)

    def rounded(*shape: int) -> np.ndarray[Any, Any]:
        return np.empty(shape, np.uint16)

    def matrix(n: int, k: int) -> tuple[np.ndarray[Any, Any], ...]:
        return np.empty((n, k), np.uint8), np.empty((-(-n // 32), k // 32), np.uint8)

    ids, shard = np.empty((rows, picks), np.int32), np.empty(64, np.uint8)
    place, origin = np.empty((16, 2 if name == "moe_up" else 1, 2), np.uint64), np.empty(1, np.uint64)
    if name == "moe_up":
        return (planes(rows, hidden), ids, shard, place, origin, *matrix(inner, hidden), *matrix(inner, hidden)), inner
    routed = rounded(rows, picks, inner), ids, shard, place, origin
    return (*routed, *matrix(hidden, inner), rounded(rows, inner)), hidden


SIZES = [(128, 64, 4), (256, 128, 6), (5120, 2304, 6), (5120, 2304, 3)]


def tasks(launch: Launch, name: str) -> tuple[list[tuple[int, int]], int, int]:
    """((turn, tile) of every threadgroup of the shared part, tiles, idle ones): the twin of the kernels' numbering."""
    t: dict[str, Any] = dict(launch.template)
    matrices, count = (2, t["J"]) if name == "moe_up" else (1, t["N"])
    tiles = matrices * -(-count // (t["WN8"] * (32 // t["LK8"]) * t["TN8"]))
    own = t["PICKS"] * matrices * -(-t["N"] // (t["WN"] * (32 // t["LK"]) * t["TN"]))
    across, rows = launch.grid[0] // launch.threadgroup[0], launch.grid[1]
    found = [row * (across - own) + at - own for row in range(rows) for at in range(own, across)]
    live = [(task // tiles, task % tiles) for task in found if task // tiles * t["R"] < rows]
    return live, tiles, len(found) - len(live)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16])
@pytest.mark.parametrize("name", NAMES)
def test_every_tile_is_computed_once_and_few_threadgroups_idle(name: str, rows: int) -> None:
    kernel = families.get(name).kernel
    for hidden, inner, picks in SIZES:
        arrays, n = shapes(name, rows, hidden, inner, picks)
        for geometry in kernel.geometries:
            launch = kernel.launch(arrays, geometry, n=n)
            live, tiles, idle = tasks(launch, name)
            turns = -(-rows // rows_at_once(rows))
            assert sorted(live) == [(turn, tile) for turn in range(turns) for tile in range(tiles)]
            assert idle < rows
            t: dict[str, Any] = dict(launch.template)
            assert launch.threadgroup[0] == 32 * t["WN"] == 32 * t["SW8"] * t["WN8"]


@pytest.mark.parametrize("backend", ["cuda", "metal"])
@pytest.mark.parametrize("name", NAMES)
def test_the_routed_part_is_computed_as_it_is_alone(name: str, backend: str) -> None:
    kernel, routed = families.get(name).kernel, families.get(APART[name][0]).kernel
    for rows in range(1, 17):
        arrays, n = shapes(name, rows, 5120, 2304, 6)
        geometry = kernel.geometry(backend, arrays, n=n)
        own = routed.geometry(backend, arrays[: plan.ROUTED], n=n)
        assert all(geometry[key] == own[key] for key in ("TN", "PF", "RG"))
        assert geometry["TN8"] == 2  # more takes registers from the routed part
        assert kernel.plan(arrays, geometry, n=n).threadgroup[0] == 32 * own["WN"]


def bits(kernel: Kernel, arrays: tuple[Any, ...], **options: Any) -> list[bytes]:
    return [y.tobytes() for y in run_host(kernel, arrays, kernel.launch(arrays, **options))]


@needs_clang
@pytest.mark.parametrize("name", NAMES)
def test_one_launch_has_the_bits_of_two(name: str) -> None:
    proof, (routed, shared) = families.get(name), APART[name]
    kernel = proof.kernel
    for case in proof.cases()[-2:]:
        apart = bits(families.get(routed).kernel, case.arrays[: plan.ROUTED], **case.options)
        apart += bits(families.get(shared).kernel, SHARED[name](case.arrays))
        assert bits(kernel, case.arrays, **case.options) == apart


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    kernel = families.get(name).kernel
    arrays, n = shapes(name, 3, 256, 128, 3)
    other = shapes(name, 4, 256, 128, 3)[0]
    narrow = shapes(name, 3, 256, 64, 3)[0]
    last = len(arrays) - 1
    misfits: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((arrays[0].view(np.int32), *arrays[1:]), {}),
        ((arrays[0], other[1], *arrays[2:]), {}),
        ((*arrays[: plan.ROUTED], *narrow[5:7], *arrays[7:]), {}),
        ((*arrays[:last], other[last][:, :-1]), {}),
        (arrays, {"width": 2}),
        (arrays, {"shared_width": 4}),
    )
    for changed, options in misfits:
        with pytest.raises((ValueError, TypeError), match=name):
            kernel.launch(changed, **options | {"n": n})


def test_rows_of_the_shared_expert_are_those_of_the_routed() -> None:
    arrays, n = shapes("moe_down", 3, 256, 128, 3)
    with pytest.raises(ValueError, match="3 rows of ids and 4 rows"):
        families.get("moe_down").kernel.launch((*arrays[:-1], np.empty((4, 128), np.uint16)), n=n)
