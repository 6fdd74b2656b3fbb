"""Gathered experts read where a real shard holds them; equal bits wherever they lie. Knows no order of sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.ops import linear
from tensorfold.checkpoint import Checkpoint
from tensorfold.kernels.kernel import as_mlx, as_numpy
from tensorfold.proof import families
from tensorfold.proof.families.experts import cases
from tensorfold.proof.host import run_host
from tensorfold.proof.numerics.exact import load_bf16
from tensorfold.proof.proof import Case
from tests.support.hostkit import needs_clang

TINY = Path(__file__).parents[2] / "examples" / "tiny-v41"
EXPERTS, PREFIX, BEGIN = 16, "layers.1.ffn.experts", 4096


def shard_and_places(matrices: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the shard from BEGIN on, and where in the file the experts' codes and scales are."""
    index = json.loads((TINY / "model.safetensors.index.json").read_text())["weight_map"]
    whole = np.fromfile(TINY / index[f"{PREFIX}.0.w1.weight"], np.uint8)
    length = int(whole[:8].view(np.uint64)[0])
    header = json.loads(whole[8 : 8 + length].tobytes())
    place = np.zeros((EXPERTS, len(matrices), 2), np.uint64)
    for e in range(EXPERTS):
        for m, matrix in enumerate(matrices):
            for which, leaf in enumerate(("weight", "scale")):
                place[e, m, which] = header[f"{PREFIX}.{e}.{matrix}.{leaf}"]["data_offsets"][0] + 8 + length
    return whole[BEGIN:], place


def rows_of(case: Case, k: int, n: int) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """The case's rows with the real shard in place of its own."""
    x, ids = case.arrays[:2]
    shard, place = shard_and_places(("w2",) if x.ndim == 3 else ("w1", "w3"))
    assert int(place.min()) > BEGIN
    width = next(w for w in (16, 8, 4) if not np.any((place[..., 0] - np.uint64(BEGIN)) % np.uint64(w)))
    return (x, ids, shard, place, np.array([BEGIN], np.uint64)), {"n": n, "width": width}


@needs_clang
@pytest.mark.parametrize("name, paired, k, n", [("experts_up", False, 128, 64), ("experts_down", True, 64, 128)])
def test_a_real_shard_gives_what_ops_gives(name: str, paired: bool, k: int, n: int) -> None:
    proof = families.get(name)
    kernel = proof.kernel
    arrays, options = rows_of(cases.make("", paired, k, 1, 4, 5, EXPERTS), k, n)
    got = run_host(kernel, arrays, kernel.launch(arrays, **options))
    x = as_mlx(arrays[0])
    with Checkpoint.open(TINY) as checkpoint:
        weights = linear.load_experts(checkpoint, PREFIX, EXPERTS)
    x, ids = (x if paired else x[:, None]), mx.array(arrays[1])
    expected = linear.Matrices(False).gathered_fp4(x, ids, weights.w2 if paired else weights.w13)
    for y, part in zip(got, mx.split(expected, len(got), -1)):
        wanted = np.array(part.astype(mx.float32))
        largest = np.abs(wanted).max()
        assert largest > 0 and np.all(np.abs(load_bf16(y) - wanted) <= 2.0**-7 * np.abs(wanted) + 2.0**-16 * largest)
    for y, stated in zip(got, proof.stated(*arrays, **options)):
        assert y.tobytes() == stated.tobytes()


@needs_clang
@pytest.mark.parametrize("name, paired", [("experts_up", False), ("experts_down", True)])
def test_bits_do_not_depend_on_where_the_experts_lie(name: str, paired: bool) -> None:
    kernel, first = families.get(name).kernel, None
    for width, far in ((16, 0), (8, 5 * 2**32 + 16), (4, 2**40), (16, cases.FAR)):
        case = cases.make("", paired, 256, 42, 3, 7, 5, width=width, far=far)
        arrays = tuple(a.reshape(1, -1) if i == 2 else a for i, a in enumerate(case.arrays))
        got = [y.tobytes() for y in run_host(kernel, arrays, kernel.launch(arrays, **case.options))]
        first = first or got
        assert got == first


def with_gap(case: Case, gap: int) -> tuple[np.ndarray, ...]:
    """The case with `gap` bytes put between the start of its shard and the experts."""
    x, ids, shard, place, origin = case.arrays
    longer = np.zeros((gap // 16384 + -(-shard.size // 16384), 16384), np.uint8)
    longer.reshape(-1)[gap : gap + shard.size] = shard
    return x, ids, longer, place + np.uint64(gap), origin


@needs_clang
def test_a_gap_before_the_experts_changes_no_bit() -> None:
    proof, case = families.get("experts_up"), cases.make("", False, 128, 42, 3, 4, 5)
    kernel = proof.kernel
    arrays = with_gap(case, 3 * 16384)
    got = run_host(kernel, arrays, kernel.launch(arrays, **case.options))
    assert [y.tobytes() for y in got] == [y.tobytes() for y in proof.stated(*case.arrays, **case.options)]


@pytest.mark.skipif(not mx.cuda.is_available(), reason="needs an NVIDIA GPU, MLX for CUDA and 10 GB of memory")
@pytest.mark.parametrize("name, paired", [("experts_up", False), ("experts_down", True)])
def test_experts_beyond_4_gib_of_one_buffer(name: str, paired: bool) -> None:
    proof, case = families.get(name), cases.make("", paired, 128, 42, 3, 4, 5)
    kernel = proof.kernel
    arrays = [as_mlx(a) for a in with_gap(case, 2**32 + 16384)]
    got = [as_numpy(y) for y in kernel(*arrays, backend="cuda", **case.options)]
    assert [y.tobytes() for y in got] == [y.tobytes() for y in proof.stated(*case.arrays, **case.options)]


@pytest.mark.parametrize("name, paired", [("experts_up", False), ("experts_down", True)])
def test_shapes_that_do_not_fit_are_refused(name: str, paired: bool) -> None:
    kernel, case = families.get(name).kernel, cases.make("", paired, 256, 42, 3, 4, 5)
    x, ids, shard, place, origin = case.arrays
    for arrays, options in (
        ((x[..., :-1], ids, shard, place, origin), case.options),
        ((x.view(np.int16).astype(np.float32), ids, shard, place, origin), case.options),
        ((x, ids[:-1], shard, place, origin), case.options),
        ((x, ids, shard, place[:, :, :1], origin), case.options),
        ((x, ids, shard, place, place[:, 0, 0]), case.options),
        (case.arrays, {"n": 42, "width": 2}),
    ):
        with pytest.raises(ValueError, match=name):
            kernel.launch(arrays, **options)
