"""Every gate goes red for its own kind of mistake and stays green for a good kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorfold import kernels
from tensorfold.proof import families
from tensorfold.proof.contract.bench import HostBench
from tensorfold.proof.contract.gates import judge, prepare_cases
from tensorfold.proof.contract.limits import problems
from tensorfold.proof.contract.report import digest, plant, run_contract, summary
from tensorfold.proof.contract.value import outside, ulp, values
from tensorfold.proof.proof import Bound, Mistake, Proof
from tests.support.hostkit import needs_clang

RMS, ROPE = families.get("rms_norm"), families.get("rope")


def _few(proof: Proof, *names: str) -> Proof:
    cases = [c for c in proof.cases() if c.name in names]
    assert len(cases) == len(names)
    return replace(proof, cases=lambda: cases)


SMALL, TURNS = _few(RMS, "K96", "order", "extreme"), _few(ROPE, "3x48/32", "extreme")
HEADER = "rms.h"
LANES = "v = p_add(v, simd_shuffle_xor(v, ushort(%d)));"
TURN = "p_add(p_mulz(a, s), p_mulz(b, c))"
WRITTEN = "i < uint(K); i += 32u * uint(G)"
GATES = {
    "lanes in another order": (
        SMALL,
        Mistake("", f"{LANES % 16}\n  {LANES % 8}", f"{LANES % 8}\n  {LANES % 16}", "portable.h"),
        3,
    ),
    "a wrong scale": (SMALL, Mistake("", "p_div(1.0f, p_sqrt", "p_div(1.01f, p_sqrt", HEADER), 3),
    "an element not written": (SMALL, Mistake("", WRITTEN, WRITTEN.replace("i <", "i + 1u <")), 3),
    "a dropped barrier": (SMALL, Mistake("", "P_BARRIER();", ""), 4),
    "an element too far": (SMALL, Mistake("", "i < uint(K); i += 256u", "i <= uint(K); i += 256u", HEADER), 4),
    "a forgotten flush": (TURNS, Mistake("", TURN, TURN.replace("mulz", "mul"), "turn.h"), 3),
}  # fmt: skip


@needs_clang
@pytest.mark.parametrize("proof, mistake, gate", GATES.values(), ids=GATES)
def test_a_mistake_turns_a_gate_red(proof: Proof, mistake: Mistake, gate: int) -> None:
    found = judge(proof.planted(mistake), HostBench()).findings
    assert gate in {f.gate for f in found}, [str(f) for f in found[:4]]


@needs_clang
@pytest.mark.parametrize(
    "find, harmless",
    [
        ("p_mul(w, p_mul", "p_mul(p_round_bf(w), p_mul"),  # a bfloat16 rounds to itself
        ("p_treesum<8>(part)", "p_add(p_treesum<4>(part + 4), p_treesum<4>(part))"),  # addition commutes
    ],
)
def test_a_harmless_change_stays_green(find: str, harmless: str) -> None:
    assert judge(SMALL.planted(Mistake("", find, harmless, HEADER)), HostBench()).findings == []


@needs_clang
def test_order_depends_on_no_geometry() -> None:
    mistake = Mistake("", "g < 8u; g += uint(G)", "g < uint(G); g += uint(G)", HEADER)
    found = judge(SMALL.planted(mistake), HostBench()).findings
    assert any("geometry" in f.message and f.gate == 3 for f in found) or any(f.gate == 4 for f in found)


@needs_clang
def test_rows_may_not_see_each_other() -> None:
    factor = "float r = rms_factor<K>(part, eps[0]);"
    text = SMALL.files()["rms_norm.metal"]
    assert text.count(factor) == 1
    text = text.replace(factor, factor + " if (threadgroups_per_grid.x <= 4u) r = p_mul(r, 2.0f);")
    declared = "uint thread_index_in_threadgroup [[thread_index_in_threadgroup]])"
    text = text.replace(declared, declared[:-1] + ",\n    uint3 threadgroups_per_grid [[threadgroups_per_grid]])")
    odd = SMALL.with_texts({"rms_norm.metal": text})
    bad = replace(odd, stated=lambda *a: HostBench().run(odd.kernel, a, odd.kernel.launch(a)))
    found = [f for f in judge(bad, HostBench()).findings if f.gate == 3]
    assert found and all("rows" in f.message for f in found)


@needs_clang
def test_an_order_that_changed_with_its_statement_has_another_digest() -> None:
    bench = HostBench()
    wanted = digest([p.stated for p in prepare_cases(SMALL)])
    assert run_contract(SMALL, bench, mistakes=False, stored=wanted).ok
    odd = SMALL.planted(Mistake("", "p_treesum<8>(part)", "p_add(part[0], p_treesum<8>(part))", HEADER))
    both = replace(odd, stated=lambda *a: bench.run(odd.kernel, a, odd.kernel.launch(a)))
    changed = replace(both, reference=lambda *a: [values(y) for y in both.stated(*a)])
    assert run_contract(changed, bench, mistakes=False).ok
    found = run_contract(changed, bench, mistakes=False, stored=wanted).findings
    assert len(found) == 1 and f"stored is {wanted}" in found[0]


@needs_clang
def test_a_plan_that_refuses_rows_of_a_prompt_is_a_finding() -> None:
    def narrow(arrays: Sequence[Any], geometry: kernels.Geometry) -> kernels.Launch:
        if arrays[0].shape[0] > 64:
            raise ValueError("no more than 64 rows")
        return RMS.kernel.plan(arrays, geometry)

    found = run_contract(replace(SMALL, kernel=replace(SMALL.kernel, plan=narrow)), HostBench()).findings
    assert len(found) == 1 and "no more than 64 rows" in found[0]


@needs_clang
def test_a_loose_reference_is_caught_by_the_bound() -> None:
    bad = replace(SMALL, reference=lambda x, w, eps: [1.01 * RMS.reference(x, w, eps)[0]])
    assert {f.gate for f in judge(bad, HostBench()).findings} == {2}


@needs_clang
def test_a_source_that_metal_rejects_is_gate_1() -> None:
    bad = SMALL.planted(Mistake("", "float mean = ", "double mean = ", HEADER))
    found = judge(bad, HostBench()).findings
    assert found and found[0].gate == 1 and "rms.h:" in found[0].message


@needs_clang
def test_a_control_must_build_and_must_be_seen() -> None:
    bench = HostBench()
    assert plant(SMALL, Mistake("red", "float(K));", "float(K + 1));", HEADER), bench) == ""
    assert "stays green" in plant(SMALL, Mistake("green", "float mean =", "float  mean =", HEADER), bench)
    assert "does not build" in plant(SMALL, Mistake("broken", "float mean =", "float mean = missing +", HEADER), bench)
    assert "exactly once" in plant(SMALL, Mistake("absent", "no such text", ""), bench)
    assert "without host" in plant(SMALL, Mistake("gpu only", "float mean =", "", backends=("cuda",)), bench)


@needs_clang
def test_missed_controls_limits_and_known_findings_are_counted() -> None:
    green = Mistake("green", "float mean =", "float  mean =", HEADER)
    missed = run_contract(replace(SMALL, mistakes=(green, green)), HostBench())
    few = run_contract(replace(SMALL, mistakes=()), HostBench())
    known = replace(SMALL, reference=lambda x, w, eps: [1.01 * RMS.reference(x, w, eps)[0]], known={"gate 2": "a test"})
    results = [missed, few, run_contract(known, HostBench())]
    assert [r.ok for r in results] == [False, False, True]
    assert summary("host", results) == (
        "SUMMARY host: 3 kernels: 3 pass gates 1-4, 0 fail, 3 known findings; "
        "10 controls: 7 red as planted, 3 missed; 0 limit problems"
    )


def test_limits() -> None:
    case = RMS.cases()[0]
    plan = RMS.launch(case)
    assert problems(RMS.kernel, [(case.arrays, plan)], 32768) == []
    wide = kernels.Launch(plan.template, (2048, 1, 1), (2048, 1, 1), plan.shapes, plan.dtypes)
    odd = kernels.Launch(plan.template, (48, 1, 1), (48, 1, 1), plan.shapes, plan.dtypes)
    found = problems(RMS.kernel, [(case.arrays, wide), (case.arrays, odd)], 40000)
    assert sum("2048 threads" in f for f in found) == 5 and sum("40000 bytes" in f for f in found) == 5
    assert sum("multiple of 32" in f for f in found) == 1
    atomics = RMS.planted(Mistake("", "float r =", "device atomic_ulong* p = (device atomic_ulong*)y; float r ="))
    assert [f for f in problems(atomics.kernel, [(case.arrays, plan)], 0)] == [
        "64-bit atomics need Apple family 9, M1 has 7",
        "64-bit atomics need Apple family 9, M2 has 8",
    ]


def test_measure_of_values() -> None:
    bf16, single = np.dtype(np.uint16), np.dtype(np.float32)
    assert ulp(np.array([1.0, 1.99, 2.0, 1e-45]), bf16).tolist() == [2.0**-7, 2.0**-7, 2.0**-6, 2.0**-133]
    assert ulp(np.array([1.0, 3e38]), single).tolist() == [2.0**-23, 2.0**104]
    half = Bound("", ulps=0.5)

    def judged(value: float, truth: float) -> bool:
        return not outside(half, [np.array([value], np.float32)], [np.array([truth])], [], {})[0]

    assert judged(1.0, 1.0 + 2.0**-24) and not judged(1.0, 1.0 + 2.0**-23)
    assert judged(np.nan, np.nan) and not judged(np.nan, 1.0) and not judged(1.0, np.nan)
    assert judged(np.inf, np.inf) and not judged(-np.inf, np.inf) and not judged(np.inf, 1e30)
    assert judged(np.inf, 3.4028236e38) and judged(0.0, 1e-39)
    assert outside(half, [np.array([3], np.uint8)], [np.array([4])], [], {})[0]
