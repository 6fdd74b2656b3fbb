"""The two launches of the pick against the engine's pick, and their noise against the engine's. Knows no filters."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.engine import noise as engine_noise
from tensorfold.engine.pick import pick
from tensorfold.engine.rows import RowParams
from tensorfold.proof import families
from tensorfold.proof.families.pick import cases
from tensorfold.proof.host import run_host
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.numerics.keyed import log_noise, noise_of
from tests.support.hostkit import needs_clang

Arrays = tuple[np.ndarray, ...]


def engine(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    logits, temperature, seed, position = (mx.array(a) for a in arrays)
    picked = pick(logits, RowParams(temperature=temperature, seed=seed, position=position))
    return np.array(picked.ids), np.array(picked.finite)


def on_host(arrays: Arrays) -> list[np.ndarray]:
    first, second = families.get("pick_parts").kernel, families.get("pick").kernel
    between = run_host(first, arrays, first.launch(arrays))
    return run_host(second, between, second.launch(between))


def drawn(rows: int, vocab: int) -> Arrays:
    """Rows of every temperature, greedy ones among them; some hold NaN or an infinity."""
    draw = Draw(vocab)
    temperature = draw.uniform(0.05, 2.0, rows)
    temperature[::3] = 0.0
    logits = draw.normal(rows, vocab, scale=4.0)
    logits[4, 7], logits[9, vocab - 1] = np.nan, -np.inf
    return logits, temperature, draw.words(rows, 2), draw.integers(0, 2**31 - 1, rows)


def test_noise_has_the_engines_bits() -> None:
    draw = Draw(5)
    edges = np.array([0, 1, 2**16, int(0.2928932 * 2**32), 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.int64)
    near = np.clip(edges[:, None] + np.arange(-300, 301), 0, 2**32 - 1).astype(np.uint32).reshape(-1)
    words = np.concatenate(
        [near, draw.words(200_000), draw.words(32, 1000).reshape(32, -1) >> np.arange(32)[:, None].astype(np.uint32)],
        axis=None,
    )
    expected = engine_noise.log(engine_noise.exponential(mx.array(words)))
    assert noise_of(words).tobytes() == np.array(expected).tobytes()
    seed, position = draw.words(16, 2), draw.integers(0, 2**31 - 1, 16)
    expected = engine_noise.log_noise(mx.array(seed), mx.array(position), 2047)
    assert log_noise(seed, position, 2047).tobytes() == np.array(expected).tobytes()


@needs_clang
@pytest.mark.parametrize("vocab", [40, 512, 2048, 5001])
def test_the_engines_token_is_picked(vocab: int) -> None:
    arrays = drawn(16, vocab)
    (ids, finite), (wanted, sound) = on_host(arrays), engine(arrays)
    assert finite.tolist() == sound.tolist() and 0 < sum(sound) < 16
    assert ids[sound].tolist() == wanted[sound].tolist()
    assert np.all((ids >= 0) & (ids < vocab))


@needs_clang
def test_the_last_bit_of_the_noise_decides_as_in_the_engine() -> None:
    arrays = cases.near_ties(16, 3000)
    (ids, _), (wanted, _) = on_host(arrays), engine(arrays)
    assert ids.tolist() == wanted.tolist() and len(set(wanted.tolist())) > 8


@needs_clang
def test_ties_go_to_the_lower_token() -> None:
    logits = np.zeros((2, 70_000), f32)
    # parts 1 and 33 are of one lane
    logits[0, [69_999, 33 * 1024 + 5, 1031, 1032]], logits[1] = 2.0, -0.0
    logits[1, 1500] = 0.0
    cold = np.zeros(2, f32), np.zeros((2, 2), np.uint32), np.zeros(2, np.int32)
    assert on_host((logits, *cold))[0].tolist() == [1031, 0] == engine((logits, *cold))[0].tolist()


def test_shapes_that_do_not_fit_are_refused() -> None:
    logits, temperature, seed, position = drawn(16, 40)
    with pytest.raises(ValueError, match="pick_parts"):
        families.get("pick_parts").kernel.launch((logits, temperature, seed[:, :1], position))
    with pytest.raises(ValueError, match="pick"):
        families.get("pick").kernel.launch((np.zeros((2, 3), np.uint32),))
