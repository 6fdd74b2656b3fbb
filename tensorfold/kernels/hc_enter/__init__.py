"""What stands before a sublayer as one launch: mix, collapse, norm, quantise. Kernel, truth, order. Knows no sublayer.

Source: the model's specification, sections 2 and 3: hc_mix of the streams' partial products, hc_collapse_norm with the
mix before, and its output through act_quant as planes. Truth and order: those of the three kernels, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import act_quant_fp8, hc_collapse_norm, inputs, quantisers
from tensorfold.kernels.codes import E4M3
from tensorfold.kernels.exact import f32, load, store_bf16
from tensorfold.kernels.hc_mix import mix
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, width: int, iterations: int = 20) -> Launch:
    """part [R, C, 25], base [24], scale [3], norm_eps [1], hc_eps [1] as hc_mix takes them, x [R, N, D] bfloat16,
    pre [R, N] float32 of the mix before, w [D] bfloat16, D a multiple of 32 -> own (this mix's pre), post [R, 4],
    comb [R, 4, 4] float32, h [R, D] bfloat16, q [R, 4, D / 16, 4] float32. `width`, `iterations`: those of hc_mix.
    """
    part, x, pre, w = arrays[0], *arrays[5:]
    try:
        mixed = mix.plan(arrays[:5], {"height": 1}, width, iterations)
        rows, n, d = x.shape
    except ValueError as error:
        raise ValueError(f"hc_enter: {error}") from error
    if part.shape[0] != rows or tuple(pre.shape) != (rows, n) or tuple(w.shape) != (d,) or d % 32:
        raise ValueError(
            f"hc_enter: part {tuple(part.shape)}, pre {tuple(pre.shape)} and w {tuple(w.shape)} do not fit the streams "
            f"{tuple(x.shape)}, expected [R, C, 25], [R, N] and [D] for [R, N, D] with D a multiple of 32"
        )
    groups, each = geometry["G"], geometry["V"]
    threads = 32 * groups
    template = {"D": d, "N": n, **mixed.template, "G": groups, "V": each, "P": -(-d // (threads * each))}
    shapes = (*mixed.shapes, (rows, d), (rows, 4, d // 16, 4))
    return Launch(template, (2 * threads, rows, 1), (threads, 1, 1), shapes, (*mixed.dtypes, mx.bfloat16, mx.float32))


def reference(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """float64, with the published roundings: of the collapse, and of the norm before it is quantised."""
    (h,) = hc_collapse_norm.reference(x, pre, w, norm_eps)
    with np.errstate(all="ignore"):
        (q,) = act_quant_fp8.reference_planes(store_bf16(h.astype(f32)))
    return [*mix.reference(part, base, scale, norm_eps, hc_eps, width, iterations), h, q]


def stated(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """float32: the three kernels' orders, one after another."""
    (h,) = hc_collapse_norm.stated(x, pre, w, norm_eps)
    return [*mix.stated(part, base, scale, norm_eps, hc_eps, width, iterations), h, *act_quant_fp8.stated_planes(h)]


def _quantised_apart(h: Array, error: Array) -> Array:
    """Largest distance between quantised values of vectors within `error` of h: at a scale they grow with h."""
    with np.errstate(all="ignore"):
        ends = [load(store_bf16((h + side * error).astype(f32))) for side in (-1, 1)]
        least = np.where(np.signbit(ends[0]) == np.signbit(ends[1]), np.minimum(*np.abs(ends)), f32(0))
        made = []
        for size in (least, np.maximum(*np.abs(ends))):
            _, step = quantisers.power_scale(store_bf16(size), 32, act_quant_fp8.FLOOR, act_quant_fp8.FACTOR)
            for end in ends:
                parts = end.reshape(*h.shape[:-1], -1, 32).astype(np.float64) / step
                made.append(E4M3[quantisers.nearest(parts, E4M3[:127], 0x80)] * step)
        return (np.max(made, 0) - np.min(made, 0)).reshape(h.shape)


def _allowance(
    part: Array, base: Array, scale: Array, norm_eps: Array, hc_eps: Array, x: Array, pre: Array, w: Array,
    width: int, iterations: int = 20,
) -> list[Array]:  # fmt: skip
    """What the bounds of the three kernels allow beyond half a step of each output."""
    sizes = mix.sensitivity(part, base, scale, norm_eps, hc_eps, width, iterations)
    (h,) = hc_collapse_norm.reference(x, pre, w, norm_eps)
    normed = hc_collapse_norm.KERNELS[0].bound
    with np.errstate(all="ignore"):
        error = normed.relative * np.abs(h) + hc_collapse_norm.allowance(x, pre, w, norm_eps)[0] + normed.tiny
    q = act_quant_fp8.as_planes(_quantised_apart(h, error))
    return [*(mix.KERNEL.bound.absolute * size for size in sizes), error, q]


def cases() -> list[Case]:
    """Each case of the norm beside one of the mix: every hidden size, ties, extremes, any bits on both sides."""
    mixes = {case.name: case for case in mix.cases()}
    largest = mixes.pop("C40")
    bounded, wild = cycle([c for c in mixes.values() if c.bounded]), cycle([c for c in mixes.values() if not c.bounded])
    found = []
    for case in hc_collapse_norm.cases():
        if not case.options.get("norm", True):
            continue
        x, pre, w, eps = case.arrays
        beside = largest if x.shape[2] == 5120 else next(bounded if case.bounded else wild)
        part, base, scale, _, hc_eps = beside.arrays
        arrays = (part[np.arange(len(x)) % len(part)], base, scale, eps, hc_eps, x, pre, w)
        found.append(Case(f"{case.name}, {beside.name}", arrays, beside.options, case.rows, case.bounded))
    return [*found, *_planes_cases()]


def _planes_cases() -> list[Case]:
    """For the quantiser: blocks whose magnitudes lie far apart, zeros of both signs, blocks under the floor."""
    draw = inputs.Draw(31)
    powers = np.repeat(np.exp2(draw.integers(-40, 20, 16, 4).astype(f32)), 32, axis=1)
    x = store_bf16(draw.normal(16, 128) * powers)[:, None]
    x[0, 0, :32], x[1, 0, 32:64] = 0, 0x8000
    one = np.ones((16, 1), f32)
    part = np.zeros((16, 1, 25), f32)
    gain, flat = store_bf16(np.ones(128, f32)), (np.zeros(24, f32), np.ones(3, f32), np.array([1e-20], f32))
    arrays = (part, *flat, np.array([1e-6], f32), x, one, gain)
    tiny = (part, *flat, np.array([1e-6], f32), draw.bf16(16, 1, 128), one, store_bf16(np.full(128, 2.0**-30, f32)))
    return [Case("blocks far apart", arrays, {"width": 128}), Case("under the floor", tiny, {"width": 128})]


def _choose(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """A long row in one pass of 640 threads, so that all of it is under way at once."""
    return 1 if arrays[5].shape[2] > 1024 else 0


KERNELS = (
    Kernel(
        name="hc_enter",
        path=Path(__file__).with_name("hc_enter.metal"),
        inputs=("part", "base", "scale", "norm_eps", "hc_eps", "x", "pre", "w"),
        outputs=("own", "post", "comb", "h", "q"),
        geometries=({"G": 8, "V": 4}, {"G": 20, "V": 8}, {"G": 16, "V": 8}, {"G": 32, "V": 4}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "half a step, and for the mix, the collapse and the norm what their own bounds say; where h crosses an "
            "edge of a code or of a scale, the distance between the values at both ends of what h may be",
            ulps=0.5,
            absolute=1.0,
            scale=_allowance,
        ),
        controls=(
            # mistakes inside a part are planted where it stands alone
            Control("collapse not rounded first", "p_round_bf(collapse<N>(weight, one))", "collapse<N>(weight, one)"),
            Control(
                "quantised before it is rounded",
                "p_round_bf(p_mul(gain[pass * V + k], p_mul(y[pass * V + k], r)))",
                "p_mul(gain[pass * V + k], p_mul(y[pass * V + k], r))",
            ),
            Control("every SIMD group mixes", "if (simd == 0u) {", "{", backends=("host",)),
            Control("the mix overwrites", "own + row * 4u", "post + row * 4u", backends=("host",)),
            Control("halves of a word swapped", "v[4 * i] = p_bflo(q.x);", "v[4 * i] = p_bfhi(q.x);"),
            Control("last pass missed", "fp8_scale<V>(n);", "fp8_scale<V>(n);\n if (P > 1 && pass == P - 1) return;"),
            Control("threads past the end kept", "if (d < uint(D)) {\n      float v", "{ float v", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("part", "x", "pre"),
        alignment={"x": 8, "w": 8},
        choose=_choose,
    ),
)
