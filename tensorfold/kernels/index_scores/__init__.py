"""Index scores of rows against packed keys by place: kernel, truth, stated order, mistakes, a thin call. Knows no slot.

Source: the model's specification, sections 5 and 10: float32 throughout, relu before the heads' weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.codes import E2M1, UE8M0, unpack_nibbles
from tensorfold.kernels.exact import F32, f32, flush, load, mul_flushed, store_f32, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.small import constant


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """queries [R, H, B], cache [N, B], fresh [M, B] uint8, weights [R, H] bfloat16, places [S, C], segment [R] int32.

    B = K / 2 + K / 32 bytes for K elements; sizes [N, C] int32; -> scores float32 [R, C].
    """
    queries, weights, cache, fresh, places, segment, sizes = arrays
    rows, heads, row_bytes = queries.shape
    k = row_bytes // 17 * 32
    fits = tuple(weights.shape) == (rows, heads) and cache.shape[1] == fresh.shape[1] == row_bytes == k // 32 * 17
    if not fits or not cache.shape[0] or tuple(segment.shape) != (rows,) or tuple(sizes.shape) != (2,):
        raise ValueError(
            f"index_scores: weights {tuple(weights.shape)}, cache {tuple(cache.shape)}, fresh {tuple(fresh.shape)} and "
            f"segment {tuple(segment.shape)} do not fit queries {tuple(queries.shape)} of packed rows"
        )
    if heads > 64:
        raise ValueError(f"index_scores: {heads} heads do not fit, at most 64")
    c, threads = places.shape[1], 32 * geometry["G"]
    shared = heads & (heads - 1) == 0 and heads >= geometry["T"]  # else the halving does not end in whole shuffles
    each = geometry["T"] if shared else 1
    template = {"H": heads, "K": k, "T": each, "WIDE": row_bytes % 4 == 0}
    return Launch(template, (-(-c * each // threads) * threads, rows, 1), (threads, 1, 1), ((rows, c),), (mx.float32,))


def unpack(rows: Array) -> tuple[F32, F32]:
    """Packed rows -> codes' values [..., K / 32, 32] and scales [..., K / 32]."""
    k = rows.shape[-1] // 17 * 32
    codes = E2M1[unpack_nibbles(rows[..., : k // 2])]
    return codes.reshape(*rows.shape[:-1], k // 32, 32), UE8M0[rows[..., k // 2 :]]


def _parts(queries: Array, cache: Array, fresh: Array, places: Array, segment: Array) -> tuple[F32, F32, Array]:
    """Exact block dots [R, H, C, K / 32], products of scales, and which places are empty [R, C]."""
    at = places[segment]
    q, qs = unpack(queries)
    k, ks = unpack(np.concatenate([cache, fresh])[np.maximum(at, 0)])
    return np.einsum("rhbi,rcbi->rhcb", q, k), mul_flushed(qs[:, :, None], ks[:, None]), at < 0


def _truth(dots: Array, scales: Array, empty: Array, weights: Array) -> Array:
    with np.errstate(all="ignore"):
        total = np.sum(dots.astype(np.float64) * scales, -1)
        total = np.where(total < 0, 0, total) * wide(weights)[:, :, None]
        return np.where(empty, -np.inf, total.sum(1))


def reference(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    """float64 truth; scales' products as float32 holds them (powers of two)."""
    return [_truth(*_parts(queries, cache, fresh, places, segment), weights)]


def stated(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    """float32: blocks in order, then heads by halves."""
    dots, scales, empty = _parts(queries, cache, fresh, places, segment)
    parts = mul_flushed(dots, scales)
    with np.errstate(all="ignore"):
        total = parts[..., 0]
        for b in range(1, parts.shape[-1]):
            total = flush(total + parts[..., b])
        s = mul_flushed(np.where(total < 0, f32(0), total), load(weights)[:, :, None])
        while s.shape[1] > 1:
            low, high = s[:, : (s.shape[1] + 1) // 2], s[:, (s.shape[1] + 1) // 2 :]
            s = np.concatenate([flush(low[:, : high.shape[1]] + high), low[:, high.shape[1] :]], 1)
    return [store_f32(np.where(empty, f32(-np.inf), s[:, 0]))]


def _magnitude(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    dots, scales, empty = _parts(queries, cache, fresh, places, segment)
    absolute = _truth(np.abs(dots), scales, empty, np.abs(load(weights)))
    return [np.where(np.isfinite(absolute), absolute, 0)]


def index_scores(
    queries: mx.array,
    weights: mx.array,
    cache: mx.array,
    fresh: mx.array,
    places: mx.array,
    segment: mx.array,
    *,
    backend: str,
) -> mx.array:
    """Scores float32 [R, C] of rows against their segment's `places` [S, C]; an empty place (-1) gives -inf."""
    sizes = constant(np.int32, cache.shape[0], places.shape[1])
    fresh = fresh if fresh.size else cache[:1]
    return KERNELS[0](queries, weights, cache, fresh, places, segment, sizes, backend=backend)[0]


def packed(draw: inputs.Draw, *shape: int, k: int, low: int = 110, high: int = 134) -> Array:
    """Random packed rows uint8 [*shape, K / 2 + K / 32], scale bytes in low..high-1."""
    return np.concatenate([draw.bytes(*shape, k // 2), draw.integers(low, high, *shape, k // 32).astype(np.uint8)], -1)


def _case(name: str, heads: int, k: int, counts: tuple[int, ...], seed: int, rows: bool = False, **more: Any) -> Case:
    """A case of `counts` = rows, segments, columns, cache rows, new rows; the last columns of a segment are empty."""
    r, s, c, n, m = counts
    draw = inputs.Draw(seed)
    places = draw.integers(0, n + m, s, c)
    for i in range(s):
        places[i, c - 1 - 3 * i :] = -1
        places[i, :3] = n - 1, n, n + m - 1
    queries, weights = packed(draw, r, heads, k=k, **more), draw.bf16(r, heads)
    cache, fresh = packed(draw, n, k=k, **more), packed(draw, m, k=k, **more)
    segment = (np.arange(r) % s).astype(np.int32)
    sizes = np.array([n, c], np.int32)
    return Case(name, (queries, weights, cache, fresh, places, segment, sizes), rows=rows)


def cases() -> list[Case]:
    """Every number of heads and width, rows of several segments, an odd number of heads, zero and NaN scales."""
    found = [
        _case("4 x 32", 4, 32, (16, 3, 50, 40, 7), 31, rows=True),
        _case("4 x 64", 4, 64, (5, 2, 130, 60, 5), 32),
        _case("32 x 128", 32, 128, (2, 2, 70, 30, 3), 33),
        _case("5 x 64", 5, 64, (3, 1, 40, 60, 1), 34),
        _case("32 x 32", 32, 32, (3, 2, 64, 40, 3), 35),
    ]
    special = _case("special codes", 4, 64, (6, 2, 64, 32, 2), 36, low=120, high=130)
    queries, _, cache, fresh = special.arrays[:4]
    queries[0, 1, 32], queries[1, :, 33], queries[2, 3, 33] = 0, 0, 255
    cache[3, 32], cache[4, 33], fresh[1, 33], cache[5:9, :32] = 0, 255, 0, 0x88
    special.arrays[1][3, 0], special.arrays[1][4, 1] = 0, 0x8000
    found.append(special)
    tiny = _case("scales far apart", 4, 64, (3, 1, 64, 32, 2), 37, low=1, high=255)
    found.append(Case(tiny.name, tiny.arrays, bounded=False))
    return found


KERNELS = (
    Kernel(
        name="index_scores",
        path=Path(__file__).with_name("index_scores.metal"),
        inputs=("queries", "weights", "cache", "fresh", "places", "segment", "sizes"),
        outputs=("scores",),
        geometries=({"G": 4, "T": 8}, {"G": 8, "T": 4}, {"G": 2, "T": 1}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "a block's dot is exact; at most 3 additions of blocks, a product and 5 levels of heads: 10 roundings "
            "of 2^-24 of the sum of magnitudes; a flushed part costs 2^-126 times a weight",
            ulps=0.5,
            absolute=10 * 2.0**-24,
            tiny=2.0**-110,
            scale=_magnitude,
        ),
        controls=(
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control(
                "heads added neighbours first",
                "for (int i = 0; i < N / 2; i++) a[i] = p_flush(p_add(a[i], a[i + (N + 1) / 2]));",
                "for (int i = 0; i < (N + 1) / 2; i++) "
                "a[i] = 2 * i + 1 < N ? p_flush(p_add(a[2 * i], a[2 * i + 1])) : a[2 * i];",
            ),
            Control(
                "blocks added from the last",
                "for (uint b = 0u; b < uint(K / 32); b++) {",
                "for (uint z = uint(K / 32); z > 0u; z--) {\n    uint b = z == uint(K / 32) ? 0u : z;",
            ),
            Control(
                "weight before relu",
                "p_mulz(p_max(sum[n], 0.0f), weight[part + uint(n * T)])",
                "p_max(p_mulz(sum[n], weight[part + uint(n * T)]), 0.0f)",
            ),
            Control("scale of the first block", "key[uint(K / 2) + b]", "key[uint(K / 2)]"),
            Control("query's scale of the first head", "unit[h * uint(K / 32) + b]", "unit[b]"),
            Control(
                "threads' heads added neighbours first",
                "int d = T / 2; d > 0; d = d / 2",
                "int d = 1; d < T; d = d * 2",
            ),
            Control("nibbles swapped", "word >> (4u * j) & 15u", "word >> (4u * (j ^ 1u)) & 15u"),
            Control("first segment's places", "ulong(segment[row]) * c", "ulong(0) * c"),
            Control("a new key taken from the cache", "place < held ?", "place <= held ?", backends=("host",)),
            Control("empty place scored", "empty ? p_neg(p_inf()) : total", "total"),
            Control("edge threads kept", "part == 0u && column < c", "part == 0u", backends=("host",)),
            Control(
                "places past the last", "int place = column < c ?", "int place = column <= c ?", backends=("host",)
            ),
        ),
        cases=cases,
        row_inputs=("queries", "weights", "segment"),
        alignment={"cache": 4, "fresh": 4},
    ),
)
