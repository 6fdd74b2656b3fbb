"""RoPE tables: float64 rounded once, with the published frequencies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tensorfold.kernels.rope.tables import inverse_frequencies, rope_table

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "rope_frequencies.json").read_text())


def test_published_frequencies() -> None:
    plain = inverse_frequencies(64, 10000.0)
    scaled = inverse_frequencies(64, 160000.0, factor=16.0, original=65536)
    assert np.allclose(plain, PUBLISHED["window"], rtol=2e-7, atol=0)
    assert np.allclose(scaled, PUBLISHED["compressed"], rtol=4e-7, atol=0)


def test_rounded_once() -> None:
    table = rope_table(1000, 64, 10000.0)
    angle = 999 * 10000.0 ** (-2 * 5 / 64)
    assert table.shape == (1000, 32, 2) and table.dtype == np.float32
    assert table[999, 5].tolist() == [np.float32(np.cos(angle)), np.float32(np.sin(angle))]


def test_odd_dims_are_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        rope_table(4, 7, 10000.0)
