"""Rotary tables: the published frequencies to the bit, angles rounded as published, cosine and sine rounded once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tensorfold.config import ModelConfig
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
