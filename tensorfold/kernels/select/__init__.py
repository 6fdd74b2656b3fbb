"""Selection of the best rows by integer keys: kernel, truth, planted mistakes, a thin call. Knows no indexer.

Source: the model's specification, sections 5 and 10: ties go to the lower row, NaN ranks below everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, load
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.small import constant


def plan(arrays: Sequence[Any], geometry: Geometry, k: int, block: int = 0, flags: bool = False) -> Launch:
    """scores [R, C] float32, visible [R], kept [R, ceil(C / block)], sizes [C, k] int32 -> rows int32 [R, min(k, C)].

    With `flags` the result is 1 or 0 for each score, int32 [R, C].
    """
    scores, visible, kept, sizes = arrays
    rows, c = scores.shape
    fits = tuple(visible.shape) == (rows,) and tuple(sizes.shape) == (2,) and k >= 1
    if not fits or (block and tuple(kept.shape) != (rows, -(-c // block))):
        raise ValueError(
            f"select: visible {tuple(visible.shape)}, kept {tuple(kept.shape)}, sizes {tuple(sizes.shape)} and k {k} "
            f"do not fit scores {tuple(scores.shape)} in blocks of {block}"
        )
    threads = 32 * geometry["G"]
    if c > 65535 * threads:
        raise ValueError(f"select: {c} scores, {threads} threads can count {65535 * threads}: take a wider geometry")
    template = {"FLAGS": flags, "BLOCK": block, "G": geometry["G"]}
    shape = (rows, c if flags else min(k, c))
    return Launch(template, (rows * threads, 1, 1), (threads, 1, 1), (shape,), (mx.int32,))


def reference(
    scores: Array, visible: Array, kept: Array, sizes: Array, k: int, block: int = 0, flags: bool = False
) -> list[Array]:
    """By a full sort of each row: by value, then index."""
    v = load(scores).copy()
    rows, c = v.shape
    if block:
        v[np.repeat(kept == 0, block, 1)[:, :c]] = -np.inf
    out = np.full((rows, c if flags else min(k, c)), 0 if flags else -1, np.int32)
    for r in range(rows):
        n = c if flags else min(max(int(visible[r]), 0), c)
        order = np.lexsort((np.arange(n), -v[r, :n], np.isnan(v[r, :n])))
        if flags:
            order = order[v[r, order] > -np.inf]
            out[r, order[:k]] = 1
        else:
            best = np.sort(order[:k])
            out[r, : len(best)] = best
    return [out]


def select(
    scores: mx.array,
    visible: mx.array,
    k: int,
    kept: mx.array | None = None,
    block: int = 0,
    flags: bool = False,
    *,
    backend: str,
) -> mx.array:
    """Rows of the best `k` visible scores ascending, -1 padded, int32 [R, min(k, C)]; with `flags` int32 [R, C].

    `kept` int32 [R, ceil(C / block)] (of `candidate_blocks`) limits the choice: other scores count as -inf.
    """
    sizes = constant(np.int32, scores.shape[1], k)
    kept = visible if kept is None else kept
    return KERNELS[0](scores, visible, kept, sizes, backend=backend, k=k, block=block, flags=flags)[0]


def _case(
    name: str, scores: Array, visible: Any, k: int, kept: Array | None = None, rows: bool = False, **more: Any
) -> Case:
    count, c = scores.shape
    seen = np.broadcast_to(np.asarray(visible, np.int32), (count,)).copy()
    none = np.zeros((count, 1), np.int32) if kept is None else kept
    sizes = np.array([c, k], np.int32)
    return Case(name, (scores.astype(f32), seen, none, sizes), {"k": k, **more}, rows=rows)


def cases() -> list[Case]:
    """Few and many columns, ties at the boundary, every visible number near it, NaN, infinities, candidates, flags."""
    found = []
    draw = inputs.Draw(21)
    found.append(_case("32 of 128", draw.normal(16, 128), draw.integers(1, 129, 16), 32, rows=True))
    edge = [0, 1, 31, 32, 33, 34, 199, 200]
    found.append(_case("visible near k", draw.normal(8, 200), edge, 32))
    found.append(_case("512 of 3000", draw.normal(3, 3000), [3000, 2999, 513], 512))
    found.append(_case("ties", draw.integers(-2, 3, 6, 700).astype(f32), [700, 699, 600, 40, 32, 513], 32))
    found.append(_case("all equal", np.zeros((2, 1100), f32), [1100, 1040], 512))
    found.append(_case("all", draw.normal(3, 20), [20, 7, 0], 32))
    signed = np.where(draw.integers(0, 2, 2, 96) > 0, f32(0.0), f32(-0.0))
    found.append(_case("zeros of both signs", signed, 96, 5))
    found.append(_case("extreme", inputs.extremes_f32(96), 96, 32))
    # keys that differ in one digit alone, for every digit
    steps = (0x40000000 + (np.arange(64, dtype=np.uint32)[None] << np.array([[0], [4], [8], [12], [16]]))).astype(
        np.uint32
    )
    found.append(_case("last digits", steps[:, ::-1].copy().view(f32), 64, 7))
    special = draw.normal(4, 96)
    special[0, ::2], special[1, 5:], special[2, 90:], special[3] = np.nan, -np.inf, np.inf, np.nan
    found.append(_case("special", special, 96, 60))
    kept = draw.integers(0, 2, 5, 75)
    kept[3], kept[4] = 0, 1
    found.append(_case("candidates", draw.normal(5, 299), [299, 298, 150, 299, 299], 32, kept, block=4))
    flagged = draw.integers(-3, 3, 5, 130).astype(f32)
    flagged[0, 3:], flagged[1, 20:], flagged[2, ::3], flagged[3] = -np.inf, np.nan, np.inf, np.nan
    found.append(_case("flags", flagged, 130, 12, flags=True))
    found.append(_case("all flags", flagged[:, :9], 9, 12, flags=True))
    return found


KERNELS = (
    Kernel(
        name="select_rows",
        path=Path(__file__).with_name("select_rows.metal"),
        inputs=("scores", "visible", "kept", "sizes"),
        outputs=("rows",),
        geometries=({"G": 16}, {"G": 8}, {"G": 1}),
        plan=plan,
        reference=reference,
        stated=reference,
        bound=Bound("indices and flags are integers and must be equal", ulps=0.0),
        controls=(
            Control(
                "first barrier dropped",
                "P_BARRIER();\n      for (uint j = group;",
                "for (uint j = group;",
                backends=("host",),
            ),
            Control("second barrier dropped", "P_BARRIER();\n      uint digit", "uint digit", backends=("host",)),
            Control("last barrier dropped", "P_BARRIER();\n  uint before", "uint before", backends=("host",)),
            Control(
                "ties to the higher row",
                "tied && earlier < need",
                "tied && all_ties - earlier <= need",
            ),
            Control("all ties taken", "(tied && earlier < need)", "tied", backends=("host",)),
            Control("NaN first", "p_isnan(v) ? 1u : ordered", "p_isnan(v) ? 0xffffffffu : ordered"),
            Control("sign ignored", "(u & 0x80000000u) != 0u ? ~u : u | 0x80000000u", "u | 0x80000000u"),
            Control("zeros told apart", "p_bits(p_add(v, 0.0f))", "p_bits(v)"),
            Control("last digit not looked at", "shift < 32u; shift = shift - 4u", "shift > 0u; shift = shift - 4u"),
            Control("higher digits forgotten", "shift == 28u || (key >>", "true || (key >>"),
            Control("invisible scores ranked", "p_minu(uint(visible[row] < 0 ? 0 : visible[row]), c)", "c"),
            Control("scores past the row", "for (uint i = me; i < n;", "for (uint i = me; i <= n;"),
            Control("candidates ignored", "BLOCK > 0 && kept[", "false && kept["),
            Control("-inf taken for a candidate", "flags && key <= 0x007fffffu", "flags && key < 0x007fffffu"),
            Control("no padding", "i < k; i += uint(32 * G)) rows", "i + 1u < k; i += uint(32 * G)) rows"),
            Control(
                "one padding too many",
                "i < k; i += uint(32 * G)) rows",
                "i <= k; i += uint(32 * G)) rows",
                backends=("host",),
            ),
        ),
        cases=cases,
        row_inputs=("scores", "visible", "kept"),
    ),
)
