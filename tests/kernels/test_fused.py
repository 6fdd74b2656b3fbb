"""A fused kernel gives the bits of the launches it replaces, run one after another; its plan names misfits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels.attend.plan import NAMES, SCORED, VALUED
from tensorfold.kernels.kernel import as_mlx, as_numpy
from tensorfold.kernels.rope_pack import norm_rope_pack
from tensorfold.proof import families
from tensorfold.proof.families.attend import cases as trials
from tensorfold.proof.families.rope.cases import turns
from tensorfold.proof.numerics.inputs import Draw, extremes_bf16
from tests.support.hostkit import needs_clang

PACKS = {
    "window": "act_quant_fp8_pack",
    "compressed": "act_quant_fp4_e4m3_pack",
    "key": "act_quant_fp4_e8m0_pack",
}
EPS, LIMIT = mx.array([1e-20]), mx.array([10.0])


def run(name: str, *arrays: mx.array, **options: Any) -> mx.array:
    return families.get(name).kernel(*arrays, backend="host", **options)[0]


def turned(x: mx.array, table: mx.array) -> mx.array:
    rows = x if x.ndim == 3 else x[:, None]
    return run("rope", rows, table, mx.arange(len(x), dtype=mx.int32)).reshape(x.shape)


def same(made: Sequence[mx.array], apart: Sequence[mx.array]) -> bool:
    return [as_numpy(y).tobytes() for y in made] == [as_numpy(y).tobytes() for y in apart]


@needs_clang
@pytest.mark.parametrize("rows, k, inner, shared", [(1, 6, 128, 128), (5, 3, 96, 192), (2, 2, 64, 64)])
def test_swiglu_round(rows: int, k: int, inner: int, shared: int) -> None:
    draw = Draw(inner)
    gate, up = (as_mlx(draw.bf16(rows, k, inner, scale=5.0)) for _ in range(2))
    shared_gate, shared_up = (as_mlx(draw.any_bf16(rows, shared)) for _ in range(2))
    weights = mx.array(draw.uniform(0.0, 1.5, rows, k))
    made = families.get("swiglu_round").kernel(gate, up, weights, shared_gate, shared_up, LIMIT, backend="host")
    routed = run("swiglu_weighted", gate, up, weights, LIMIT)
    plain = run("swiglu_weighted", shared_gate, shared_up, LIMIT, LIMIT, weighted=False)
    assert same(made, [run("act_quant_fp8_round", routed), run("act_quant_fp8_round", plain)])


@needs_clang
@pytest.mark.parametrize("k, d, turns_of", [(96, 64, 16), (1280, 512, 64)])
def test_attn_norms(k: int, d: int, turns_of: int) -> None:
    draw = Draw(k + d)
    low, kv = as_mlx(extremes_bf16(k)), as_mlx(draw.bf16(16, d))
    q_norm, kv_norm, table = as_mlx(draw.bf16(k)), as_mlx(draw.bf16(d)), mx.array(turns(16, turns_of))
    made = families.get("attn_norms").kernel(low, q_norm, kv, kv_norm, table, EPS, backend="host")
    row = turned(run("rms_norm", kv, kv_norm, EPS), table)
    queries = run("act_quant_fp8_planes", run("rms_norm", low, q_norm, EPS))
    assert same(made, [queries, run("act_quant_fp8_pack", row)])


@needs_clang
@pytest.mark.parametrize("kind", PACKS)
@pytest.mark.parametrize("heads, d, norm", [(0, 64, True), (0, 512, False), (32, 128, False), (3, 96, True)])
def test_norm_rope_pack(kind: str, heads: int, d: int, norm: bool) -> None:
    draw = Draw(d + heads)
    x, w = as_mlx(draw.any_bf16(3, heads, d) if heads else draw.bf16(3, d)), as_mlx(draw.bf16(d))
    table = mx.array(turns(40, d // 2)[[7, 0, 31]])
    made = norm_rope_pack(x, w if norm else None, table, EPS, kind=kind, backend="host")
    apart = run("rms_norm", x.reshape(-1, d), w, EPS).reshape(x.shape) if norm else x
    assert same([made], [run(PACKS[kind], turned(apart, table))])


@pytest.mark.parametrize("name", ["swiglu_round", "attn_norms", "norm_rope_pack"])
def test_misfits_are_refused(name: str) -> None:
    proof = families.get(name)
    kernel = proof.kernel
    case = proof.cases()[-1]
    for change in range(len(case.arrays) - 1):
        arrays = list(case.arrays)
        arrays[change] = arrays[change][..., :-1]
        with pytest.raises(ValueError, match=name):
            kernel.launch(arrays, **case.options)


def test_rows_of_an_unknown_kind_are_refused() -> None:
    case = families.get("norm_rope_pack").cases()[0]
    with pytest.raises(ValueError, match="window, compressed, key"):
        families.get("norm_rope_pack").kernel.launch(case.arrays, kind="wide", norm=False)


@pytest.mark.parametrize("name, groups", [("attend_scores", (24, 16)), ("attend_values", (128, 8))])
def test_few_rows_attend_in_more_threadgroups(name: str, groups: tuple[int, int]) -> None:
    proof = families.get(name)
    kernel = proof.kernel
    (case,) = [c for c in proof.cases() if c.name == "64 x 512"]
    for rows, expected in zip((1, 24), groups):
        arrays = [np.repeat(a, rows, 0) if n in proof.row_inputs else a for n, a in zip(kernel.inputs, case.arrays)]
        launch = kernel.launch(arrays, kernel.geometry("cuda", arrays))
        assert launch.grid[0] // launch.threadgroup[0] == expected


@pytest.mark.parametrize("width", [32, 192, 320, 1024])
def test_heads_of_other_widths_are_refused(width: int) -> None:
    case = trials.case("odd", 2, width, (1, 16, 16), 1)
    arrays = dict(zip(NAMES, case.arrays)) | {"scores": np.zeros((1, 2, 64), np.float32)}
    for name, names in (("attend_scores", SCORED), ("attend_values", VALUED)):
        with pytest.raises(ValueError, match=f"{name}: heads of {width // 32 * 32} elements"):
            families.get(name).kernel.launch([arrays[n] for n in names])
