"""Attention's kernels and their plain twins in the ops backend: equal choices and scores, both within the bound."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.base import Columns
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import attention, glue
from tensorfold.kernels.attend import Run, attend
from tensorfold.kernels.attend.plan import NAMES, SCORED, VALUED
from tensorfold.kernels.candidate_blocks import candidate_blocks
from tensorfold.kernels.index_scores import index_scores
from tensorfold.kernels.kernel import Array, as_mlx, as_numpy
from tensorfold.kernels.select import select
from tensorfold.proof import families
from tensorfold.proof.contract.value import outside
from tensorfold.proof.families.attend import cases as trials
from tensorfold.proof.families.attend import reference as ref
from tensorfold.proof.families.index_scores.cases import packed
from tensorfold.proof.host import run_host
from tensorfold.proof.numerics.codes import to_e4m3
from tensorfold.proof.numerics.exact import f32, load_bf16
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case
from tests.support.hostkit import needs_clang

pytestmark = needs_clang


@pytest.mark.parametrize("d", [64, 512])
def test_compress_pair(d: int) -> None:
    draw, proof = Draw(d), families.get("compress_pair")
    opened, own = draw.normal(3, 2, d), draw.normal(6, 2, d, scale=2.0)
    partner = np.array([[1, 3], [3, 4], [2, 5], [0, 8]], np.int32)
    made = proof.kernel(*map(as_mlx, (opened, own, partner)), backend="host")[0]
    group = mx.array(np.concatenate([opened, own])[partner])
    for y in (made, attention.compress_pair(group[:, :, 0], group[:, :, 1])):
        found, worst = outside(
            proof.bound, [as_numpy(y)], proof.reference(opened, own, partner), (opened, own, partner), {}
        )
        assert not found and worst <= 1


@pytest.mark.parametrize("heads, k", [(4, 32), (4, 64), (32, 128)])
@pytest.mark.parametrize("fresh_rows", [0, 5])
def test_index_scores_of_rows_of_three_slots_equal_ops(heads: int, k: int, fresh_rows: int) -> None:
    draw, n, c, seen = Draw(heads * k + fresh_rows), 90, 64, (64, 41, 7)
    queries, weights = as_mlx(packed(draw, 7, heads, k=k)), as_mlx(draw.bf16(7, heads))
    cache, fresh = as_mlx(packed(draw, n, k=k)), as_mlx(packed(draw, fresh_rows, k=k))
    places = draw.integers(0, n + fresh_rows, 3, c)
    for i, count in enumerate(seen):
        places[i, count:] = -1
    segment = np.array([2, 0, 1, 1, 0, 2, 0], np.int32)
    if not fresh_rows:
        fresh = mx.zeros((0, 0), mx.uint8)
    made = np.array(index_scores(queries, weights, cache, fresh, mx.array(places), mx.array(segment), backend="host"))
    for r, s in enumerate(segment):
        rows = attention.gather(Columns(cache, fresh, mx.array(places[s]), RowKind.KEY))
        twin = np.array(attention.index_scores(queries[r : r + 1], weights[r : r + 1], rows))[0]
        assert made[r, : seen[s]].tobytes() == twin[: seen[s]].tobytes()
        assert np.all(made[r, seen[s] :] == -np.inf)


def scores_with_ties(rows: int, c: int) -> Array:
    scores = Draw(c).integers(-4, 5, rows, c).astype(np.float32)
    scores[0, ::7], scores[1, ::5], scores[2, 1::3] = np.nan, -np.inf, -0.0
    return scores


@pytest.mark.parametrize("c, topk", [(64, 32), (192, 32), (1100, 512), (40, 512), (20000, 512)])
def test_select_equals_ops(c: int, topk: int) -> None:
    scores = mx.array(scores_with_ties(6, c))
    visible = mx.array(np.array([c, c - 1, c // 2, 3, 0, c], np.int32))
    made = select(scores, visible, topk, backend="host")
    assert np.array_equal(np.array(made), np.array(attention.select(scores, visible, None, topk)))


@pytest.mark.parametrize("c, block, blocks, topk", [(192, 4, 12, 32), (203, 8, 5, 32), (1104, 8, 100, 512)])
def test_candidates_and_a_choice_among_them_equal_ops(c: int, block: int, blocks: int, topk: int) -> None:
    scores, other = mx.array(scores_with_ties(6, c)), mx.array(Draw(c + 1).normal(6, c))
    visible = mx.array(np.array([c, c - 1, c // 2, 3, 1, c - 7], np.int32))
    kept = candidate_blocks(scores, visible, block, blocks, backend="host")
    mask = attention.candidate_mask(scores, visible, block, blocks)
    assert np.array_equal(np.array(kept), np.array(mask)[:, ::block])
    made = select(other, visible, topk, kept, block, backend="host")
    assert np.array_equal(np.array(made), np.array(attention.select(other, visible, mask, topk)))


def runs(case: Case) -> tuple[dict[str, mx.array], Run, Run | None]:
    """The arrays of a case, its window run and its compressed run."""
    a = dict(zip(NAMES, map(as_mlx, case.arrays)))
    far = (a["packed"], a["packed_new"], a["packed_places"]) if int(a["sizes"][3]) else None
    return a, (a["window"], a["window_new"], a["window_places"]), far


BOTH = [("attend_scores", SCORED), ("attend_values", VALUED)]
CASES = [
    trials.case("8 x 64", 8, 64, (5, 32, 40), 1),
    trials.case("window alone", 8, 64, (3, 133, 0), 2),
    trials.case("8 x 512", 8, 512, (2, 64, 30), 3),
    trials.case("64 x 512", 64, 512, (1, 16, 60), 4),
    trials.cancelling_values(),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_attend_and_ops_within_the_bound(case: Case) -> None:
    """Both kernels' bounds together."""
    scores, values = families.get("attend_scores"), families.get("attend_values")
    a, near, far = runs(case)
    columns = [Columns(*near, RowKind.WINDOW)] + ([Columns(*far, RowKind.COMPRESSED)] if far else [])
    given = trials.only(SCORED, case).arrays
    exact, size = ref.scores_and_size(*given)
    arrays = exact.astype(np.float32), *trials.only(VALUED, case).arrays[1:]
    truth, slack = ref.truth_and_slack(*arrays, off=size * scores.bound.absolute)
    bound = replace(values.bound, scale=lambda *_: [slack])
    made = attend(a["q"], a["table"], a["sink"], near, far, backend="host")
    twin = glue.rope(attention.attend(glue.rope(a["q"], a["table"], False), columns, a["sink"]), a["table"], True)
    for y in (made, twin):
        found, worst = outside(bound, [as_numpy(y)], [truth], arrays, {})
        assert not found and worst <= 1, found


@pytest.mark.parametrize("apart, least", [(40, 1e17), (44, 1e17), (45, 0), (60, 0), (100, 0)])
def test_a_weight_below_the_least_counts_as_zero_in_both(apart: int, least: float) -> None:
    """Two columns whose scores are `apart`; the one of less weight alone has values, and large ones."""
    a = dict(zip(NAMES, (x.copy() for x in trials.case("least", 8, 64, (1, 64, 0), 6).arrays)))
    a["q"][:], a["q"][..., 0], a["sink"][:] = 0, 0x3F80, 0
    a["table"] = trials.not_turned(1, 2 * a["table"].shape[1])
    a["window_places"][:], a["window_places"][0, :2], a["window"][:2] = -1, (0, 1), 0
    a["window"][:2, 0], a["window"][:2, 64] = to_e4m3(np.array([448, 448 - 8 * apart], f32)), 127
    a["window"][1, 32:64], a["window"][1, 65] = 0x7E, 240
    a, near, _ = runs(Case("least", tuple(a.values())))
    made = attend(a["q"], a["table"], a["sink"], near, None, backend="host")
    twin = attention.attend(a["q"], [Columns(*near, RowKind.WINDOW)], a["sink"])
    for y in (made, twin):
        values = load_bf16(as_numpy(y))[..., 32:]
        assert np.all(values > least) if least else np.all(values == 0)


@pytest.mark.parametrize("name, names", BOTH)
def test_attend_of_more_columns_than_a_threadgroup_takes_at_once(name: str, names: tuple[str, ...]) -> None:
    proof, case = families.get(name), trials.only(names, trials.case("long", 8, 64, (2, 133, 700), 5))
    kernel = proof.kernel
    expected = proof.stated(*case.arrays)[0]
    for geometry in kernel.geometries:
        assert np.array_equal(run_host(kernel, list(case.arrays), kernel.launch(case.arrays, geometry))[0], expected)


def test_an_output_that_is_shrunk_to_nothing_is_zero_whatever_empty_columns_follow() -> None:
    """A far higher score shrinks what is below zero to -0, and the part of its block, +0, makes it +0: so the parts of
    empty blocks, +0 too, change nothing."""
    proof, found = families.get("attend_values"), []
    kernel = proof.kernel
    for width in (96, 320):
        a = dict(zip(NAMES, (x.copy() for x in trials.case("zero", 8, 64, (1, width, 0), 6).arrays)))
        a["q"][:] = 0x3F80
        a["window"][:2, 64:], a["window"][0, :64], a["window"][1, :64] = 127, 0xB8, 0x80
        a["window"][1, 0], a["window"][1, 64] = 0x7E, 129
        a["window_places"][:], a["window_places"][0, 0], a["window_places"][0, 70] = -1, 0, 1
        arrays = trials.only(VALUED, Case("zero", tuple(a.values()))).arrays
        found.append(proof.stated(*arrays)[0])
        for geometry in kernel.geometries:
            made = run_host(kernel, list(arrays), kernel.launch(arrays, geometry))[0]
            assert np.array_equal(made, found[-1])
    assert np.all(found[0][..., 1:48] == 0) and np.any(found[0]) and np.array_equal(*found)


@pytest.mark.parametrize("name, names", BOTH)
def test_attend_of_narrow_rows_at_odd_addresses_changes_no_bit(name: str, names: tuple[str, ...]) -> None:
    proof, case = families.get(name), trials.only(names, trials.case("8 x 64", 8, 64, (5, 32, 40), 1))
    kernel = proof.kernel
    expected = proof.stated(*case.arrays)[0]
    places = [1 if a.dtype == np.uint8 else 0 for a in case.arrays] + [0]
    assert np.array_equal(run_host(kernel, list(case.arrays), kernel.launch(case.arrays), offsets=places)[0], expected)


def test_attend_changes_no_bit_with_empty_columns_or_without_new_rows() -> None:
    a, near, far = runs(CASES[0])
    assert far is not None
    given = a["q"], a["table"], a["sink"]
    plain = as_numpy(attend(*given, near, far, backend="host"))
    padded = (far[0], far[1], mx.pad(far[2], [(0, 0), (0, 200)], constant_values=-1))
    assert np.array_equal(as_numpy(attend(*given, near, padded, backend="host")), plain)
    joined = mx.concatenate([far[0], far[1]])
    stored = (joined, mx.zeros((0, 0), mx.uint8), far[2])
    assert np.array_equal(as_numpy(attend(*given, near, stored, backend="host")), plain)


@pytest.mark.parametrize("case", CASES[:3], ids=lambda c: c.name)
def test_attend_turns_as_rope_before_and_after(case: Case) -> None:
    rope = families.get("rope").kernel
    a, near, far = runs(case)
    rows, turned = a["table"].shape[:2]
    at, still = mx.arange(rows, dtype=mx.int32), as_mlx(trials.not_turned(rows, 2 * turned))
    q = rope(a["q"], a["table"], at, backend="host")[0]
    apart = rope(attend(q, still, a["sink"], near, far, backend="host"), a["table"], at, backend="host", inverse=True)
    made = attend(a["q"], a["table"], a["sink"], near, far, backend="host")
    assert np.array_equal(as_numpy(made), as_numpy(apart[0]))


@pytest.mark.parametrize(
    "name, change",
    [
        ("attend_scores", 7),
        ("attend_scores", 2),
        ("attend_scores", 1),
        ("attend_values", 7),
        ("attend_values", 1),
        ("attend_values", 0),
        ("index_scores", 5),
        ("compress_pair", 1),
        ("select_rows", 1),
        ("block_scores", 1),
    ],
)
def test_a_plan_names_what_does_not_fit(name: str, change: int) -> None:
    proof = families.get(name)
    kernel = proof.kernel
    case = proof.cases()[0]
    arrays = list(case.arrays)
    arrays[change] = arrays[change][1:, ..., 1:] if arrays[change].ndim > 1 else arrays[change][1:]
    with pytest.raises(ValueError, match="fit"):
        kernel.launch(arrays, **case.options)
