"""Attention with a sink over packed window and compressed rows: plan, bound, mistakes, a thin call. Knows no slot.

Source: the model's specification, sections 5 and 10: blocks of 64 columns, running maximum, P rounded to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.attend import reference as ref
from tensorfold.kernels.attend import trials
from tensorfold.kernels.exact import f32
from tensorfold.kernels.kernel import Bound, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """q bfloat16 [R, H, D], window rows [N and M, D + D / 32] and compressed rows [L and P, D / 2 + D / 16] uint8,
    places [R, W] and [R, K] int32, sink [H], scale [1] float32, sizes [N, W, L, K] -> out bfloat16 [R, H, D].

    K = 0 in `sizes` leaves the compressed rows out, whatever their places.
    """
    q, window, window_new, window_places, packed, packed_new, packed_places, sink, scale, sizes = arrays
    rows, heads, d = q.shape
    near, far = d + d // 32, d // 2 + d // 16
    fits = (
        window.shape[1] == window_new.shape[1] == near and packed.shape[1] == packed_new.shape[1] == far and d % 64 == 0
    )
    lists = window_places.shape[0] == packed_places.shape[0] == rows and tuple(sink.shape) == (heads,)
    if not fits or not lists or tuple(sizes.shape) != (4,) or tuple(scale.shape) != (1,):
        raise ValueError(
            f"attend: window {tuple(window.shape)}, new {tuple(window_new.shape)}, "
            f"places {tuple(window_places.shape)}, compressed {tuple(packed.shape)}, new {tuple(packed_new.shape)}, "
            f"places {tuple(packed_places.shape)} and "
            f"sink {tuple(sink.shape)} do not fit q {tuple(q.shape)}"
        )
    each = next(n for n in range(min(geometry["HG"], heads), 0, -1) if heads % n == 0)
    groups = max(geometry["G"], d // 128)
    template = {"H": heads, "D": d, "HG": each, "G": groups, "WIDE": near % 4 == 0}
    threads = 32 * groups
    return Launch(template, (heads // each * threads, rows, 1), (threads, 1, 1), ((rows, heads, d),), (mx.bfloat16,))


Run = tuple[mx.array, mx.array, mx.array]


def attend(q: mx.array, sink: mx.array, window: Run, packed: Run | None = None, *, backend: str) -> mx.array:
    """Attended bfloat16 [R, H, D]; a run of columns is (cache, this round's rows, places), an empty place is -1."""
    rows, _, d = q.shape
    k = packed[2].shape[1] if packed else 0
    if packed is None or not k:
        none = mx.zeros((1, d // 2 + d // 16), mx.uint8)
        packed = none, none, mx.full((rows, 1), -1, mx.int32)
    cache, fresh, places = (*packed[:2], packed[2])
    fresh = fresh if fresh.size else cache[:1]
    sizes = mx.array([window[0].shape[0], window[2].shape[1], cache.shape[0], k], mx.int32)
    scale = mx.array(np.array([float(d) ** -0.5], f32))
    return KERNELS[0](q, *window, cache, fresh, places, sink, scale, sizes, backend=backend)[0]


KERNELS = (
    Kernel(
        name="attend",
        path=Path(__file__).with_name("attend.metal"),
        inputs=trials.NAMES,
        outputs=("out",),
        geometries=({"HG": 4, "G": 8}, {"HG": 1, "G": 4}, {"HG": 8, "G": 16}),
        plan=plan,
        reference=ref.reference,
        stated=ref.stated,
        bound=Bound(
            "one rounding to bfloat16; before it, as parts of the sums of magnitudes: the rounding of scores (chains "
            "of D / 4), exp, and the sums over columns; P may round the other way where it lies that near a tie",
            ulps=0.5,
            relative=2 * 2.0**-24,
            absolute=1.0,
            scale=ref.slack,
        ),
        controls=(
            Control(
                "barrier before the softmax dropped",
                "P_BARRIER();\n    for (int o = 0; o < (HG",
                "for (int o = 0; o < (HG",
                backends=("host",),
            ),
            Control(
                "barrier after the softmax dropped",
                "P_BARRIER();\n    for (int o = 0; o < OWN",
                "for (int o = 0; o < OWN",
                backends=("host",),
            ),
            Control(
                "barrier before the division dropped",
                "P_BARRIER();\n  for (int o = 0; o < OWN",
                "for (int o = 0; o < OWN",
                backends=("host",),
            ),
            Control("one half of the scores for all blocks", "turn = 1u - turn;", "", backends=("host",)),
            Control(
                "columns added from the last",
                "for (int j = 0; j < last; j++) {",
                "for (int z = 0; z < last; z++) {\n      int j = last - 1 - z;",
            ),
            Control(
                "neighbouring groups to one sum",
                "for (uint d = (me & 3u) * 16u; d < uint(D); d += 64u) {",
                "for (uint z = 0u; z < uint(D / 64); z++) {\n          uint d = ((me & 3u) * uint(D / 64) + z) * 16u;",
            ),
            Control(
                "the four sums in another order",
                "simd_shuffle_xor(sum[h], ushort(1)));\n        s = p_add(s, simd_shuffle_xor(s, ushort(2)));",
                "simd_shuffle_xor(sum[h], ushort(2)));\n        s = p_add(s, simd_shuffle_xor(s, ushort(1)));",
            ),
            Control(
                "lanes added in another order",
                "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
                "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
                file="portable.h",
            ),
            Control(
                "total not fused",
                "p_fma(total[o], less, p_lanesum(p_add(low, high)))",
                "p_add(p_mul(total[o], less), p_lanesum(p_add(low, high)))",
            ),
            Control("P not rounded", "0.0f : p_round_bf(low)", "0.0f : low"),
            Control(
                "sum of rounded P", "p_lanesum(p_add(low, high))", "p_lanesum(p_add(p_round_bf(low), p_round_bf(high)))"
            ),
            Control(
                "maximum of the block alone",
                "p_max(top[o], p_lanemax(p_max(low, high)))",
                "p_lanemax(p_max(low, high))",
            ),
            Control(
                "outputs not shrunk",
                "acc[o][i] = p_mulz(acc[o][i], less);",
                "acc[o][i] = p_mulz(acc[o][i], less > 0.0f ? 1.0f : 0.0f);",
            ),
            Control(
                "sink scaled",
                "p_sub(p_load(sink[head + h]), top[o])",
                "p_sub(p_mul(p_load(sink[head + h]), scale[0]), top[o])",
            ),
            Control("sink left out", "p_add(total[o], p_exp(p_sub(p_load(sink[head + h]), top[o])))", "total[o]"),
            Control("empty columns exponentiated", "places[0] >= 0, b = places[1] >= 0;", "true, b = true;"),
            Control(
                "last column missed",
                "w + k - block < 64 ? w + k - block : 64",
                "w + k - block < 64 ? w + k - block - 1 : 64",
            ),
            Control("window scale of the first block", "row[dim + d / 32u]", "row[dim]", file="rows.h"),
            Control(
                "scale of the neighbouring block",
                "row[dim / 2u + d / 16u]",
                "row[dim / 2u + (d / 16u ^ 1u)]",
                file="rows.h",
            ),
            Control(
                "a new row taken from the cache", "place < held ?", "place <= held ?", file="rows.h", backends=("host",)
            ),
            Control(
                "a compressed place too far",
                "} else if (column < w + k) {\n        places[i]",
                "} else if (column <= w + k) {\n        places[i]",
                backends=("host",),
            ),
        ),
        cases=trials.cases,
        row_inputs=("q", "window_places", "packed_places"),
        alignment={"window": 4, "window_new": 4},
    ),
)
