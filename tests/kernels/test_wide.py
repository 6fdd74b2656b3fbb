"""Several codes at once decode as one at a time does, and the tree over lanes forms each sum once, neighbours first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.proof.numerics.codes import E2M1, E4M3
from tensorfold.proof.numerics.exact import load_bf16, tree_sum
from tests.support.hostkit import needs_clang, probe, run_probe

pytestmark = needs_clang
STORE = "y[4u * i] = v.x; y[4u * i + 1u] = v.y; y[4u * i + 2u] = v.z; y[4u * i + 3u] = v.w;"


def _equal(got: np.ndarray, wanted: np.ndarray) -> bool:
    same = got.view(np.uint32) == wanted.view(np.uint32)
    return bool(np.all(same | (np.isnan(got) & np.isnan(wanted))))


@pytest.mark.parametrize("flush", [False, True])
def test_four_e4m3_codes(tmp_path: Path, flush: bool) -> None:
    body = f"float4 v = p_e4m3x4(q[i]); v = v * P_E4M3_UNIT; {STORE}"
    codes = np.stack([np.roll(np.arange(256, dtype=np.uint8), 37 * k) for k in range(4)], axis=1)
    kernel = probe(tmp_path, "wide.h", body, {"q": "uint"}, {"y": "float"}, per_item=4)
    (got,) = run_probe(kernel, np.ascontiguousarray(codes).view(np.uint32).reshape(-1), flush=flush)
    assert _equal(got.reshape(256, 4), E4M3[codes])


@pytest.mark.parametrize("flush", [False, True])
def test_eight_e2m1_codes(tmp_path: Path, flush: bool) -> None:
    body = "float4 a, b; p_e2m1x8(q[i], a, b); uint j = 8u * i;"
    for half in "ab":
        body += "".join(
            f"y[j + {k}u] = p_mul({half}.{c}, P_E2M1_UNIT);" for k, c in enumerate("xyzw", 4 * (half == "b"))
        )
    words = np.random.default_rng(0).integers(0, 1 << 32, 256, dtype=np.uint64).astype(np.uint32)
    kernel = probe(tmp_path, "wide.h", body, {"q": "uint"}, {"y": "float"}, per_item=8)
    (got,) = run_probe(kernel, words, flush=flush)
    nibbles = (words[:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    assert _equal(got.reshape(256, 8), E2M1[nibbles])


def test_two_bfloat16_of_a_word(tmp_path: Path) -> None:
    kernel = probe(
        tmp_path, "wide.h", "a[i] = p_bflo(q[i]); b[i] = p_bfhi(q[i]);", {"q": "uint"}, {"a": "float", "b": "float"}
    )
    low = np.arange(1 << 16, dtype=np.uint16)
    high = low[::-1].copy()
    a, b = run_probe(kernel, low.astype(np.uint32) | (high.astype(np.uint32) << 16))
    assert _equal(a, load_bf16(low)) and _equal(b, load_bf16(high))


@pytest.mark.parametrize("sums", [1, 2, 3, 4, 6, 12, 16])
@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_tree_over_lanes(tmp_path: Path, sums: int, lanes: int) -> None:
    body = f"""
    float a[{sums}]; uint base = 0u; bool own = true; uint lane = i & 31u, kl = lane % {lanes}u;
    for (uint k = 0u; k < {sums}u; k++) a[k] = x[i * 16u + k];
    P_TREE(a, {sums}, {lanes}, 1, kl, base, own)
    for (uint k = 0u; k < 16u; k++) y[i * 16u + k] = 0.0f;
    if (own) {{ for (int k = 0; k < p_left({sums}, {lanes}); k++) y[i * 16u + base + uint(k)] = a[k]; }}
    """
    kernel = probe(tmp_path, "wide.h", body, {"i_": "float", "x": "float"}, {"y": "float"}, per_item=16)
    x = np.random.default_rng(sums).standard_normal((32, 16)).astype(np.float32)
    (got,) = run_probe(kernel, np.zeros(32, np.float32), x.reshape(-1))
    groups = got.reshape(32 // lanes, lanes, 16)[:, :, :sums]
    assert ((groups != 0).sum(axis=1) == 1).all()
    wanted = tree_sum(np.moveaxis(x.reshape(32 // lanes, lanes, 16)[:, :, :sums], 1, -1))
    assert np.array_equal(groups.sum(axis=1), wanted)
