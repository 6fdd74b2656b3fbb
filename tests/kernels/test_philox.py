"""Philox 4x32-10 gives Random123's known answers, in numpy and compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.numerics.philox import philox
from tests.support.hostkit import needs_clang, probe, run_probe

ONES = 0xFFFFFFFF
KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_known_answers() -> None:
    for counter, key, answer in KNOWN:
        assert philox(np.array(counter), np.array(key)).tolist() == answer


@needs_clang
def test_compiled_answers(tmp_path: Path) -> None:
    body = "uint4 c; c.x = p[i]; c.y = q[i]; c.z = r[i]; c.w = s[i]; uint2 k; k.x = t[i]; k.y = u[i];"
    body += "c = p_philox(c, k); y[4u * i] = c.x; y[4u * i + 1u] = c.y; y[4u * i + 2u] = c.z; y[4u * i + 3u] = c.w;"
    kernel = probe(tmp_path, "philox.h", body, dict.fromkeys("pqrstu", "uint"), {"y": "uint"}, per_item=4)
    words = np.random.default_rng(0).integers(0, 1 << 32, (64, 6), dtype=np.uint64).astype(np.uint32)
    for row, (counter, key, _) in enumerate(KNOWN):
        words[row] = [*counter, *key]
    (got,) = run_probe(kernel, *np.ascontiguousarray(words.T))
    assert np.array_equal(got.reshape(64, 4), philox(words[:, :4], words[:, 4:]))
    assert got.reshape(64, 4)[2].tolist() == KNOWN[2][2]


def test_draws_are_fixed_bits() -> None:
    assert Draw(7).words(3).tolist() == Draw(7).words(5)[:3].tolist() != Draw(8).words(3).tolist()
    draw = Draw(1)
    normal = draw.normal(20000)
    assert abs(float(normal.mean())) < 0.03 and abs(float(normal.std()) - 1) < 0.02
    assert draw.integers(-3, 4, 1000).min() == -3 and draw.integers(-3, 4, 1000).max() == 3
