"""The keyed noise against its numpy twin, published vectors and float64; knows nothing of logits beyond two tokens."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.engine import elementary, noise

F = np.float32


def twin_philox(counter: list[np.ndarray], key: list[np.ndarray]) -> list[np.ndarray]:
    """Philox4x32-10 in 64-bit products, another way to the same words."""
    word, wide = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = (np.asarray(k, dtype=np.uint64) for k in key)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> wide) ^ c1 ^ k0, p1 & word, (p0 >> wide) ^ c3 ^ k1, p0 & word
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & word, (k1 + np.uint64(0xBB67AE85)) & word
    return [c0, c1, c2, c3]


def twin_bits(seed: int, position: int, vocab: int) -> np.ndarray:
    blocks = np.arange((vocab + 3) // 4)
    same = np.zeros_like(blocks)
    counter = [blocks, same, same + (position & 0xFFFFFFFF), same + (position >> 32)]
    words = twin_philox(counter, [same + np.uint64(seed & 0xFFFFFFFF), same + np.uint64(seed >> 32)])
    return np.stack(words, axis=-1).reshape(-1)[:vocab].astype(np.uint32)


def twin_log_of(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    k = k.astype(F)
    z = f * f
    p = f * F(elementary.LOG_P[-1]) + F(elementary.LOG_P[-2])
    for c in elementary.LOG_P[-3::-1]:
        p = p * f + F(c)
    tail = (f * z) * p + k * F(elementary.LN2_LOW)
    return (f + (tail - z * F(0.5))) + k * F(elementary.LN2_HIGH)


def twin_split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = x.view(np.int32)
    k = (bits - np.int32(0x3F3504F3)) >> 23
    return k, (bits - k * np.int32(1 << 23)).view(F) - F(1)


def twin_exponential(bits: np.ndarray) -> np.ndarray:
    folded = np.minimum(bits, ~bits)
    y = ((folded >> 16).astype(F) * F(65536) + ((folded & 0xFFFF).astype(F) + F(0.5))) * F(2.0**-32)
    low, near = bits < 2**31, y < F(noise.ONE_MINUS_SQRT_HALF)
    k, f = twin_split(y)
    k = np.where(low, np.where(near, 0, -1), k)
    return -twin_log_of(k, np.where(low, np.where(near, -y, F(1) - y * F(2)), f))


def spread_bits() -> np.ndarray:
    """Words of every size: both ends, both sides of one half and of each branch, and random ones per power of two."""
    rng = np.random.default_rng(11)
    edges = [0, 2**16, 2**24, int(0.2928932 * 2**32), 2**31, 2**32 - 2**24, 2**32 - 2**16, 2**32 - 1]
    near = [np.clip(e + np.arange(-3000, 3001), 0, 2**32 - 1) for e in edges]
    sizes = [rng.integers(1 << k, 2 << k, 8000) for k in range(32)]
    tops = [2**32 - 1 - rng.integers(0, 2 << k, 4000) for k in range(31)]
    return np.concatenate([*near, *sizes, *tops]).astype(np.uint32)


def ulps(value: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(value - exact) / np.spacing(np.abs(exact).astype(F)).astype(np.longdouble)))


def equal_bits(a: mx.array | np.ndarray, b: np.ndarray) -> bool:
    a = np.array(a)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def seeds(*values: int) -> mx.array:
    return mx.array([[v & 0xFFFFFFFF, v >> 32] for v in values], dtype=mx.uint32)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    even, odd = noise.philox(
        *(mx.array(v, dtype=mx.uint32).reshape(2, 1, 1) for v in (counter[::2], counter[1::2], key))
    )
    assert (even[0].item(), odd[0].item(), even[1].item(), odd[1].item()) == words
    assert tuple(int(w) for w in twin_philox([np.array(c) for c in counter], [np.array(k) for k in key])) == words


@pytest.mark.parametrize("vocab", [1, 3, 4, 1001])
def test_bits_are_keyed_by_seed_position_and_token(vocab):
    keys = [(0, 0), (1, 0), (2**32, 0), (2**64 - 1, 7), (5, 2**31 - 1), (5, 2**32), (5, 2**40 + 3)]
    got = noise.noise_bits(seeds(*(s for s, _ in keys)), mx.array([p for _, p in keys], dtype=mx.int64), vocab)
    for row, (seed, position) in enumerate(keys):
        assert equal_bits(got[row], twin_bits(seed, position, vocab))
    assert len({np.array(row).tobytes() for row in got}) == len(keys)


def test_position_types_agree():
    narrow = noise.noise_bits(seeds(3, 4), mx.array([9, 2**31 - 1], dtype=mx.int32), 50)
    assert mx.array_equal(narrow, noise.noise_bits(seeds(3, 4), mx.array([9, 2**31 - 1], dtype=mx.int64), 50)).item()


def test_exponential_and_its_log_have_the_bits_of_the_twin():
    bits = spread_bits()
    value = noise.exponential(mx.array(bits))
    assert equal_bits(value, twin_exponential(bits))
    assert equal_bits(elementary.log(value), twin_log_of(*twin_split(twin_exponential(bits))))
    row = noise.log_noise(seeds(12), mx.array([34]), 4096)[0]
    assert equal_bits(row, twin_log_of(*twin_split(twin_exponential(twin_bits(12, 34, 4096)))))


def test_exponential_is_within_two_ulp_and_never_zero_or_infinite():
    bits = spread_bits()
    exact = -np.log1p(-(bits.astype(np.longdouble) + 0.5) / 2**32)
    value = np.array(noise.exponential(mx.array(bits)))
    assert ulps(value, exact) <= 2
    assert value.min() == 2.0**-33 and 22.8 < value.max() < 23


def test_exponential_rises_with_the_word():
    bits = np.unique(spread_bits())
    value = np.array(noise.exponential(mx.array(bits)))
    assert np.all(np.diff(value) >= -np.spacing(value[1:]))
    small = np.array(noise.exponential(mx.arange(1 << 16, dtype=mx.uint32)))
    assert np.all(np.diff(small) > 0)


def test_log_and_exp_are_within_two_ulp():
    rng = np.random.default_rng(5)
    wide, near = np.exp(rng.uniform(-87, 88, 200_000)), 1 + rng.normal(0, 1e-4, 50_000)
    x = np.concatenate([wide, rng.uniform(0.5, 2, 200_000), near]).astype(F)
    exact = np.log(x.astype(np.longdouble))
    keep = exact != 0
    assert ulps(np.array(elementary.log(mx.array(x)))[keep], exact[keep]) <= 2
    assert elementary.log(mx.array([1.0])).item() == 0
    y = -np.concatenate([np.exp(rng.uniform(-20, np.log(87), 200_000)), [0.0, 87.0]]).astype(F)
    assert ulps(np.array(elementary.exp(mx.array(y))), np.exp(y.astype(np.longdouble))) <= 2
    ends = np.array(elementary.exp(mx.array([0.0, -0.0, -87.01, -1e30, -np.inf, np.nan])))
    assert ends[:5].tolist() == [1, 1, 0, 0, 0] and np.isnan(ends[5])


@pytest.mark.parametrize("n", [1, 2, 5, 64, 1000])
def test_sums_follow_their_stated_order(n):
    x = np.random.default_rng(n).lognormal(0, 4, (3, n)).astype(F)
    tree = np.pad(x, [(0, 0), (0, (1 << (n - 1).bit_length()) - n)])
    while tree.shape[1] > 1:
        tree = tree[:, : tree.shape[1] // 2] + tree[:, tree.shape[1] // 2 :]
    assert equal_bits(elementary.tree_sum(mx.array(x)), tree)
    run, d = x.copy(), 1
    while d < n:
        run[:, d:] = run[:, d:] + run[:, :-d].copy()
        d *= 2
    assert equal_bits(elementary.running_sum(mx.array(x)), run)
    np.testing.assert_allclose(run, np.cumsum(x.astype(np.float64), axis=1), rtol=2e-6)


@pytest.mark.parametrize("heat", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("p", [1e-8, 3e-7, 1e-4])
def test_a_rare_token_wins_as_often_as_its_probability_says(p, heat):
    # every word of the rare token is counted against evenly spaced words of the token that holds the rest
    strata = 2048
    others = ((np.arange(strata) + 0.5) / strata * 2**32).astype(np.uint32)
    score_other = -F(heat) * np.array(elementary.log(noise.exponential(mx.array(others))))
    gap = F(heat * np.log(p / (1 - p)))
    low, high = np.zeros(strata, dtype=np.int64), np.full(strata, 2**32 - 1, dtype=np.int64)
    while np.any(low < high):  # the score falls as the word rises, so the winning words are 0 .. low - 1
        middle = (low + high) // 2
        word = mx.array(middle.astype(np.uint32))
        wins = gap - F(heat) * np.array(elementary.log(noise.exponential(word))) > score_other
        low, high = np.where(wins, middle + 1, low), np.where(wins, high, middle)
    x = 2.0**-33 / p
    assert np.mean(low) / 2**32 == pytest.approx(p * x / np.sinh(x), rel=1e-3)
