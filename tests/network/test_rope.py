"""Rotary tables: the published frequencies to the bit, angles rounded as published, cosine and sine rounded once."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tensorfold.config import ModelConfig
from tensorfold.network.plan import Planner, Segment
from tensorfold.network.rope import RopeTables, compressed_frequencies, window_frequencies

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = json.loads((DATA / "rope_frequencies.json").read_text())
CONFIG = ModelConfig.from_hf(json.loads((DATA / "config" / "hf.json").read_text()))


def test_frequencies_are_the_published_ones() -> None:
    assert np.array_equal(window_frequencies(CONFIG), np.array(PUBLISHED["window"], np.float32))
    assert np.array_equal(compressed_frequencies(CONFIG), np.array(PUBLISHED["compressed"], np.float32))


def test_far_positions_use_the_rounded_angle() -> None:
    """At a million, float32's step in the angle is a sixteenth: the published code turns by the rounded angle."""
    position = 1_000_003
    table = np.array(RopeTables(CONFIG).window(np.array([position])))[0]
    angle = np.float64(np.float32(position) * window_frequencies(CONFIG))
    assert np.array_equal(table, np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32))
    assert np.abs(np.cos(position * np.float64(window_frequencies(CONFIG)[1])) - table[1, 0]) > 1e-4


POSITIONS = [
    0, 1, 127, 255, 256, 32767, 32768, 65535, 65536, 65537, 131071, 131072, 524287, 524288, 999_999, 1_000_003,
    2**20 - 2, 2**20 - 1,
]  # fmt: skip


def by_the_formula(theta: float, yarn: bool, positions: list[int]) -> np.ndarray:
    """docs/model.md#numbers, pair by pair, in Python's floats; frequency and angle are rounded to float32 where the
    published code rounds them."""
    rd, table = CONFIG.qk_rope_head_dim, []
    for p in positions:
        row = []
        for i in range(rd // 2):
            f = np.float32(1) / np.float32(theta ** (2 * i / rd))
            if yarn:
                r = np.float32(min(max((i - 15) / 10, 0.0), 1.0))
                f = f / np.float32(16) * r + f * (np.float32(1) - r)
            angle = float(np.float32(float(np.float32(p)) * float(f)))
            row.append([math.cos(angle), math.sin(angle)])
        table.append(row)
    return np.array(table)


@pytest.mark.parametrize("compressed", [False, True])
def test_both_tables_follow_the_formula_up_to_the_last_position(compressed: bool) -> None:
    """To half a unit in the last place of cosine and sine, which are rounded once."""
    tables = RopeTables(CONFIG)
    found = np.array((tables.compressed if compressed else tables.window)(np.array(POSITIONS)))
    exact = by_the_formula(160000 if compressed else 10000, compressed, POSITIONS)
    assert found.shape == (len(POSITIONS), 32, 2) and found.dtype == np.float32
    assert np.all(np.abs(found - exact) <= np.spacing(np.abs(exact).astype(np.float32)) * 0.5 + 1e-16)


@pytest.mark.parametrize("start", [0, 126, 65_534, 131_071, 524_287, 1_000_001, 2**20 - 7])
def test_a_round_turns_every_row_by_its_own_position(start: int) -> None:
    """Rows by their positions, what a group becomes by the position of its first token; two slots side by side."""
    rows, near = 7, 40
    pages = list(range(1, 2 + (start + rows) // 128))
    segments = [Segment(0, start, list(range(rows)), pages), Segment(1, near, [5, 6, 7], [0])]
    plan = Planner(CONFIG).build(segments, 2, len(pages) + 1)
    positions = [*range(start, start + rows), near, near + 1, near + 2]
    window, compressed = by_the_formula(10000, False, positions), by_the_formula(160000, True, positions)
    for found, exact in ((plan.window_table, window), (plan.compressed_table, compressed)):
        assert np.array_equal(np.array(found), exact.astype(np.float32))
    for ratio, part in plan.compressed.items():
        closed = [i for i, p in enumerate(positions) if (p + 1) % ratio == 0]
        first = by_the_formula(160000, True, [positions[i] + 1 - ratio for i in closed])
        assert np.array(part.closing).tolist() == closed
        assert np.array_equal(np.array(part.table), first.astype(np.float32))
        assert np.array(part.visible)[: len(positions)].tolist() == [(p + 1) // ratio for p in positions]


@pytest.mark.parametrize("ratio", [1, 2])
def test_places_of_far_positions_and_high_pages(ratio: int) -> None:
    """Where compressed rows lie, by pages whose rows 16 and 24 bits do not count; window rows by the ring."""
    start, rows, first, per_page = 2**20 - 5, 4, 2**23, 128 // ratio
    pages = list(range(first, first + 2**13))
    plan = Planner(CONFIG).build([Segment(3, start, [1] * rows, pages)], 4, first + 2**13)
    part = plan.compressed[ratio]
    places, done, end = np.array(part.places)[0], start // ratio, (start + rows) // ratio
    stored = [pages[row // per_page] * per_page + row % per_page for row in range(end)]
    assert places[:done].tolist() == stored[:done]
    assert places[done:end].tolist() == [(first + 2**13) * per_page + i for i in range(end - done)]
    assert set(places[end:].tolist()) <= {-1} and np.array(part.destination).tolist() == stored[done:]
    width = CONFIG.sliding_window
    for row, found in enumerate(np.array(plan.window).tolist()):
        seen = range(start + row - width + 1, start + row + 1)
        assert found == [3 * width + p % width if p < start else 5 * width + p - start for p in seen]
