"""Real sizes: what is cut to too few bits, or stops after so many rows, is seen in kernels of every kind.

Small cases are green for each of these mistakes, so the checks of real sizes alone are asked."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold.proof import families
from tensorfold.proof.contract.bench import HostBench
from tensorfold.proof.contract.gates import far, once, prompt
from tensorfold.proof.contract.real import Real, prepare_real, row_cases
from tensorfold.proof.far import Holed, apart, moved_in_two
from tensorfold.proof.proof import Mistake, Proof
from tests.support.hostkit import needs_clang

BODY, ROWS, TILE, FP8 = "experts_rows.h", "rows.h", "tile.h", "fp8.h"


def cut(kernel: str, find: str, replace: str, file: str | None = None) -> tuple[str, Mistake]:
    return kernel, Mistake(find, find, replace, file)


# offsets of 32 bits, and indices of fewer
FAR = [
    cut("embed", "table[ulong(ids[row])", "table[uint(ids[row])"),
    cut("embed", "y + ulong(row) * uint(D) + d", "y + row * uint(D) + d"),
    cut("rope", "ulong entry = (ulong(positions[row])", "uint entry = (uint(positions[row])"),
    cut("rope", "ulong(positions[row])", "ulong(positions[row] & 0xffff)"),
    cut("compress_pair", "own + ulong(place - S)", "own + uint(place - S)"),
    cut("index_scores", "cache + ulong(place) * bytes", "cache + uint(place) * bytes"),
    cut("index_scores", "fresh + ulong(place - held) * bytes", "fresh + uint(place - held) * bytes"),
    cut("index_scores", "column = (threadgroup", "column = (0xffffu & threadgroup"),
    cut("attend_values", "fresh + ulong(place - held) * bytes", "fresh + uint(place - held) * bytes", ROWS),
    cut("attend_scores", "in_grid.y;\n  // ---- which", "in_grid.y & 63u;\n  // ---- which"),
    cut("attend_values", "ulong start =", "uint start ="),
    cut("experts_up", "weights_at = place[entry] - origin[0]", "weights_at = uint(place[entry] - origin[0])", BODY),
    cut("experts_down", "place[entry + 1u] - origin[0]", "uint(place[entry + 1u] - origin[0])", BODY),
    cut("moe_down", "place[entry + 1u] - origin[0]", "uint(place[entry + 1u] - origin[0])", BODY),
    cut("matvec_fp8", "w + ulong(n) * uint(K)", "w + n * uint(K)", FP8),
    cut("matvec_fp8_pair", "p_store(y + ulong(row) * stride", "p_store(y + row * uint(stride)", TILE),
    cut("matvec_bf16", "(ulong(n) * uint(K) + v * 8u)", "(n * uint(K) + v * 8u)"),
    cut("select_rows", "scores[row * c + (i)]", "scores[uint(row * c) + (i)]"),
    cut("select_rows", "rows[row * c + i]", "rows[uint(row * c) + i]"),
    cut("index_scores", "weights[row * uint(H) + i]", "weights[uint(row) * uint(H) + i]"),
    cut("block_scores", "uint block = thread", "uint block = 0xffffu & thread"),
    cut("hc_dots", "ulong at = ulong(row)", "uint at = uint(row)"),
    cut("hc_enter", "to = ulong(row) * uint(D)", "to = row * uint(D)"),
    cut("pick", "ulong from = (row", "uint from = (uint(row)"),
    cut("act_quant_fp8_planes", "ulong row =", "uint row ="),
]  # fmt: skip
# counts of 8 and 16 bits
LONG = [
    cut("select_rows", "P_SHARED ushort count[16 * 32 * G]", "P_SHARED uchar count[16 * 32 * G]"),
    cut("select_rows", "P_SHARED uint total[16]", "P_SHARED ushort total[16]"),
    cut("select_rows", "uint stretch =", "ushort stretch ="),
    cut("block_scores", "first = block * uint(BLOCK)", "first = ushort(block * uint(BLOCK))"),
    cut("block_scores", "uint n = p_minu(", "ushort n = p_minu("),
    cut("attend_scores", "uint column = first", "uchar column = first"),
    cut("attend_values", "column = base + at;", "column = uchar(base + at);"),
    cut("experts_up", "in_grid.x % tiles;", "in_grid.x % tiles & 127u;"),
    cut("moe_down", "uint task = row", "uchar task = row"),
    cut("matvec_fp8_pair", "uint tile = thread", "uchar tile = thread"),
    cut("matvec_fp8_quantised", "uint tile = thread", "uchar tile = thread"),
]
# rows of a prompt
PROMPT = [
    cut("experts_up", "base < pairs; base += 32u", "base < p_minu(pairs, 64u); base += 32u", BODY),
    cut("experts_down", "pair >= base + 32u ? 0xff", "pair >= base + 32u && pair < 64u ? 0xff", BODY),
    cut("experts_down", "uint hits = p_laneor", "uchar hits = p_laneor", BODY),
    cut("moe_down", "if (turn * uint(R) >= rows) return;", "if (turn * uint(R) >= p_minu(rows, 64u)) return;"),
    cut("attend_scores", "in_grid.y;\n  // ---- which", "in_grid.y & 63u;\n  // ---- which"),
    cut("matvec_fp8", "bool mine = own_row", "bool mine = group < 8u && own_row", TILE),
    cut("matvec_bf16", "p_minu(group * uint(R), rows", "p_minu(group * uint(R) & 63u, rows", TILE),
    cut("hc_dots", "row = thread_position_in_grid.y", "row = thread_position_in_grid.y & 63u"),
]  # fmt: skip
BENCH = HostBench()


def planted(kernel: str, mistake: Mistake) -> Proof:
    return families.get(kernel).planted(mistake)


@pytest.fixture(scope="module")
def real() -> dict[str, Real]:
    return {}


def of(real: dict[str, Real], kernel: str) -> Real:
    if kernel not in real:
        real[kernel] = prepare_real(families.get(kernel))
    return real[kernel]


def named(mistakes: list[tuple[str, Mistake]]) -> list[object]:
    return [pytest.param(k, m, id=f"{k}: {m.replace}") for k, m in mistakes]


@needs_clang
@pytest.mark.parametrize("kernel, mistake", named(FAR))
def test_what_is_cut_to_32_bits_or_fewer_is_seen_far_away(kernel: str, mistake: Mistake, real: dict[str, Real]) -> None:
    assert next(far(planted(kernel, mistake), BENCH, of(real, kernel)), None) is not None


@needs_clang
@pytest.mark.parametrize("kernel, mistake", named(LONG))
def test_counts_of_8_and_16_bits_are_seen_in_long_contexts(
    kernel: str, mistake: Mistake, real: dict[str, Real]
) -> None:
    proof, sizes = planted(kernel, mistake), of(real, kernel)
    found = [*far(proof, BENCH, sizes)] or next(once(proof, BENCH, sizes), None)
    assert found


@needs_clang
@pytest.mark.parametrize("kernel, mistake", named(PROMPT))
def test_what_stops_after_some_rows_is_seen_with_those_of_a_prompt(kernel: str, mistake: Mistake) -> None:
    good, bad = families.get(kernel), planted(kernel, mistake)
    case = row_cases(good, good.cases())[0]
    base = BENCH.run(good.kernel, case.arrays, good.launch(case))
    assert next(prompt(bad, BENCH, case, base), None) is not None


def test_places_beyond_a_hole() -> None:
    cache, fresh = apart(np.zeros((4, 3), np.uint8), 100), apart(np.zeros((3, 3), np.uint8), 10)
    assert cache.shape == (104, 3) and cache.size == 312 and cache.ndim == 2 and cache.row_bytes == 3
    places = np.array([-1, 0, 1, 2, 3, 4, 5, 6], np.int32)
    moved = moved_in_two(places, cache, fresh)
    assert moved.dtype == np.int32 and moved.tolist() == [-1, 0, 1, 102, 103, 104, 115, 116]
    assert Holed(np.zeros((1, 8), np.float32), 4, 100, axis=1).shape == (1, 108)
