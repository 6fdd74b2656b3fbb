"""Places of experts that 32 bits do not hold, as kernels get them: mapped, copied into one run, and in a room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.kernels import pool, weights
from tensorfold.backend.kernels.pool import GatheredRoom
from tensorfold.backend.pool import LEAVES
from tests.support.sparse import address_space

EACH = 6  # tensors of an expert


def test_mapped_experts_keep_their_places() -> None:
    places = [2**31 - 16, 2**31, 2**32 - 16, 2**32, 2**33 + 48, 2**40 + 2**32 + 32]

    class Source:
        def raw(self, name: str) -> np.ndarray:
            return np.zeros((8, 4), np.uint8)

        def mapped(self, names: Sequence[str]) -> tuple[mx.array, list[int]]:
            assert list(names) == [f"p.{e}.{leaf}" for e in range(2) for leaf in LEAVES]
            return mx.zeros((1, 16384), mx.uint8), [*places, *(at + 64 for at in places)]

    found: Any = weights.load_experts(Source(), "p", 2)  # type: ignore[arg-type]
    up, down = np.array(found.up), np.array(found.down)
    assert up.dtype == down.dtype == np.uint64 and found.width == 16
    for e in range(2):
        at = [place + 64 * e for place in places]
        assert up[e].reshape(-1).tolist() == at[:4] and down[e].reshape(-1).tolist() == at[4:]


def test_the_width_is_what_the_worst_place_allows() -> None:
    """Whichever expert and matrix it is."""
    good = np.full((3, 3), 2**32 + 48, np.uint64)
    assert weights._width(good) == 16
    for i in range(good.size):
        for off, width in ((8, 8), (4, 4), (12, 4)):
            places = good.copy()
            places.flat[i] += np.uint64(off)
            assert weights._width(places) == width
        for off in (1, 2, 3, 6):
            with pytest.raises(ValueError, match="4 does not divide"):
                weights._width(places + np.uint64(off))


def test_copied_experts_lie_one_behind_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of more than 4 GiB, of which only each tensor's first bytes are written."""
    size = 2**30 + 2**29 + 24
    address_space(EACH * (size + 16))
    monkeypatch.setattr(weights.mx, "array", lambda run: run)

    class Beginning:
        """The first bytes of a tensor that says it is long."""

        nbytes = size

        def __init__(self, name: str):
            self._bits = np.frombuffer(name.encode(), np.uint8)

        def reshape(self, _: int) -> np.ndarray:
            return self._bits

    class Source:
        def raw(self, name: str) -> Beginning:
            return Beginning(name)

    names = [[f"p.0.{leaf}" for leaf in LEAVES]]
    run, places = weights._copied(Source(), names)  # type: ignore[arg-type]
    step = -(-size // 16) * 16
    assert places == [i * step for i in range(EACH)] and run.size >= EACH * step
    flat = np.asarray(run).reshape(-1)
    for place, name in zip(places, names[0]):
        assert flat[place : place + len(name)].tobytes() == name.encode()


def test_a_room_of_more_than_4_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published sizes, in entries enough for a layer and more."""

    class Unfilled:
        def __init__(self, shape: tuple[int, ...], *_: object):
            self.shape, self.array = shape, mx.zeros((1, 1), mx.uint8)

    monkeypatch.setattr(pool, "EntryArray", Unfilled)
    shapes, entries = [(2048, 2048), (2048, 128), (2048, 2048), (2048, 128), (4096, 1024), (4096, 64)], 500
    weight = GatheredRoom(shapes, entries).weight
    sizes = [rows * columns for rows, columns in shapes]
    starts = [sum(sizes[:i]) for i in range(EACH)]
    expected = [[entry * sum(sizes) + start for start in starts] for entry in range(entries)]
    assert expected[-1][0] > 2**32
    up, down = (np.array(part).reshape(entries, -1) for part in (weight.up, weight.down))
    assert up.dtype == down.dtype == np.uint64 and np.concatenate([up, down], 1).tolist() == expected
