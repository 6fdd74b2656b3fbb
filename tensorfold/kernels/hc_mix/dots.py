"""Partial products of a row's streams with fn, and of their squares: what `hc_mix` adds. Knows no weights' meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import F32, f32, flush, fma, load, store_f32
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

CHUNK = 512


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D] bfloat16, fn [M, N D] float32 -> part [R, ceil(N D / 512), M + 1] float32."""
    x, fn = arrays
    k, m, rows = int(np.prod(x.shape[1:])), fn.shape[0], x.shape[0]
    if tuple(fn.shape) != (m, k):
        raise ValueError(f"hc_dots: fn has shape {tuple(fn.shape)}, expected {(m, k)} for streams {tuple(x.shape)}")
    chunks, groups, each = -(-k // CHUNK), geometry["G"], geometry["B"]
    # rows of a threadgroup share fn; only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    grid = (-(-chunks * -(-(m + 1) // each) // groups) * 32 * groups, rows, 1)
    template = {"K": k, "M": m, "G": groups, "B": each}
    return Launch(template, grid, (32 * groups, height, 1), ((rows, chunks, m + 1),), (mx.float32,))


def _chunks(x: Array, fn: Array, dtype: type) -> tuple[Array, Array]:
    """x [R, C, 1, 512] and the factors [R or 1, C, M, 512], then the row itself, padded with zeros."""
    rows, k = len(x), fn.shape[1]
    count = -(-k // CHUNK)
    v = np.zeros((rows, count * CHUNK), dtype)
    v[:, :k] = load(x).reshape(rows, k)
    f = np.zeros((len(fn), count * CHUNK), dtype)
    f[:, :k] = load(fn)
    v = v.reshape(rows, count, 1, CHUNK)
    return v, np.moveaxis(f.reshape(len(fn), count, CHUNK), 0, 1)[None]


def reference(x: Array, fn: Array) -> list[Array]:
    """float64 truth."""
    v, f = _chunks(x, fn, np.float64)
    with np.errstate(all="ignore"):
        products = np.einsum("rci,cmi->rcm", v[:, :, 0], f[0]) if np.isfinite(v).all() else (v * f).sum(-1)
        return [np.concatenate([products, (v * v).sum(-1)], -1)]


def stated(x: Array, fn: Array) -> list[Array]:
    """float32: 32 running sums by fma, then the lanes, every sum flushed."""
    v, f = _chunks(x, fn, f32)

    def part(a: F32, b: F32) -> F32:
        shape = np.broadcast_shapes(a.shape, b.shape)[:-1]
        acc = np.zeros((*shape, 32), f32)
        for start in range(0, CHUNK, 32):
            acc = flush(fma(a[..., start : start + 32], b[..., start : start + 32], acc))
        with np.errstate(all="ignore"):
            for distance in (16, 8, 4, 2, 1):
                acc = flush(acc + acc[..., np.arange(32) ^ distance])
        return acc[..., 0]

    return [store_f32(np.concatenate([part(v, f), part(v, v)], -1))]


def magnitude(x: Array, fn: Array) -> list[Array]:
    with np.errstate(all="ignore"):
        return reference(np.abs(load(x)), np.abs(load(fn)))


def cases() -> list[Case]:
    """Every hidden size; widths that are no multiple of a chunk; extremes; every kind of bit pattern."""
    found = []
    for d, rows in ((40, 16), (128, 3), (256, 3), (5120, 1)):
        draw = inputs.Draw(d)
        m = 5 if d == 40 else 24
        found.append(Case(f"D{d}", (draw.bf16(rows, 4, d), draw.normal(m, 4 * d, scale=0.02)), rows=d == 40))
    draw = inputs.Draw(1)
    found.append(Case("tail", (draw.bf16(3, 4, 168), draw.normal(24, 672, scale=0.02))))
    found.append(Case("extreme", (inputs.extremes_bf16(512).reshape(16, 4, 128), draw.normal(24, 512, scale=0.02))))
    found.append(Case("tiny", (draw.bf16(4, 4, 128, scale=2.0**-120), draw.normal(6, 512, scale=2.0**-7))))
    found.append(Case("any bits", (draw.any_bf16(2, 4, 128), draw.words(6, 512).view(f32)), bounded=False))
    return found


def _choose(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows need every SIMD group there can be; the rows of a prompt are enough, and there x is read less often."""
    return 0 if arrays[0].shape[0] <= 16 else 1


_HEADER = "hc_dots.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control(
        "lanes added in another order",
        "ushort(16))));\n  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(8))));",
        "ushort(8))));\n  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(16))));",
        _HEADER,
    ),
    Control(
        "product and sum not fused",
        "p_fma(v, start + b < uint(M) ? f[b] : v, acc[b])",
        "p_add(p_mulz(v, start + b < uint(M) ? f[b] : v), acc[b])",
        _HEADER,
    ),
    Control("no square", "start + b < uint(M) ? f[b] : v", "f[b]", _HEADER),
    Control(
        "sums not flushed",
        "p_flush(p_fma(v, start + b < uint(M) ? f[b] : v, acc[b]))",
        "p_fma(v, start + b < uint(M) ? f[b] : v, acc[b])",
        _HEADER,
        ("host",),
    ),
    Control("every lane writes", "if (lane == 0u && start", "if (start", _HEADER, ("host",)),
    Control("places beyond the last written", " && start + b <= uint(M)", "", _HEADER, ("host",)),
)

KERNEL = Kernel(
    name="hc_dots",
    path=Path(__file__).with_name("hc_dots.metal"),
    inputs=("x", "fn"),
    outputs=("part",),
    geometries=(
        {"G": 4, "height": 4, "B": 1},
        {"G": 5, "height": 4, "B": 5},
        {"G": 1, "height": 16, "B": 1},
        {"G": 2, "height": 8, "B": 4},
    ),
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(
        "chains of 16 fma and 5 levels of sums, each rounding 2^-24 of the sum of magnitudes, the first of no weight; "
        "each of 512 + 31 sums may be flushed",
        ulps=0.0,
        absolute=21 * 2.0**-24,
        tiny=543 * 2.0**-126,
        scale=magnitude,
    ),
    controls=(
        *CONTROLS,
        Control("a chunk too short", "p_minu(first + 512u, uint(K))", "p_minu(first + 480u, uint(K))"),
        Control("end of the row missed", "p_minu(first + 512u, uint(K))", "p_minu(first + 512u, uint(K - 1))"),
        Control("reads beyond the row", "p_minu(first + 512u, uint(K))", "first + 512u", backends=("host",)),
        Control("groups without a part kept", "if (block >= chunks * blocks) return;", "", backends=("host",)),
    ),
    cases=cases,
    row_inputs=("x",),
    choose=_choose,
)
