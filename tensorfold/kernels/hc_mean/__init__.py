"""The mean of a row's streams, which the drafter taps: kernel, truth, stated order, mistakes. Knows no layer.

Source: the model's specification, section 3, step b.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import Bits, f32, flush, load, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D] bfloat16 -> y [R, D] bfloat16."""
    (x,) = arrays
    if len(x.shape) != 3:
        raise ValueError(f"hc_mean: x has shape {tuple(x.shape)}, expected [R, N, D]")
    rows, n, d = x.shape
    width = geometry["width"]
    return Launch({"D": d, "N": n}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def reference(x: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        return [wide(x).mean(1)]


def stated(x: Array) -> list[Array]:
    """float32, streams in order."""
    v = load(x)
    total = v[:, 0]
    with np.errstate(all="ignore"):
        for i in range(1, v.shape[1]):
            total = flush(total + v[:, i])
        return [store_bf16(total / f32(v.shape[1]))]


def _magnitude(x: Array) -> list[Array]:
    return [np.abs(wide(x)).mean(1)]


def cancelling(draw: inputs.Draw, rows: int, n: int, d: int) -> Bits:
    """[rows, n, d]: the third stream takes back a large first one, so that the order of additions shows."""
    x = draw.bf16(rows, n, d)
    x[:, 0] = draw.bf16(rows, d, scale=1000.0)
    x[:, 2] = x[:, 0] ^ np.uint16(0x8000)
    return x


def cases() -> list[Case]:
    """Every hidden size, cancelling streams, extremes, every kind of bit pattern."""
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 2)):
        found.append(Case(f"D{d}", (inputs.Draw(d).bf16(rows, 4, d),), rows=d == 96))
    found.append(Case("cancelling", (cancelling(inputs.Draw(1), 16, 4, 160),), rows=True))
    found.append(Case("extreme", (inputs.extremes_bf16(4 * 128).reshape(16, 4, 128),)))
    found.append(Case("tiny", (inputs.Draw(2).bf16(4, 4, 128, scale=2.0**-124),)))
    found.append(Case("any bits", (inputs.Draw(3).any_bf16(4, 4, 256),), bounded=False))
    return found


KERNELS = (
    Kernel(
        name="hc_mean",
        path=Path(__file__).with_name("hc_mean.metal"),
        inputs=("x",),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp); N - 1 rounded sums below the sum of magnitudes, N = 4: 3 * 2^-24 of "
            "the mean magnitude; each sum and the result may be flushed",
            ulps=0.5,
            relative=2.0**-24,
            absolute=4 * 2.0**-24,
            tiny=2 * 2.0**-126,
            scale=_magnitude,
        ),
        controls=(
            Control(
                "streams in another order", "p_load(x[at + i * uint(D)])", "p_load(x[at + (uint(N) - i) * uint(D)])"
            ),
            Control("last stream missed", "i < uint(N); i++", "i + 1u < uint(N); i++"),
            Control("a stream too many", "i < uint(N); i++", "i <= uint(N); i++", backends=("host",)),
            Control("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
            Control("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
            Control(
                "sums not flushed",
                "total = p_flush(p_add(total, p_load(x[at + i * uint(D)])));",
                "total = p_add(total, p_load(x[at + i * uint(D)]));",
                backends=("host",),
            ),
            Control("rounded at every stream", "p_flush(p_add(total", "p_round_bf(p_add(total"),
        ),
        cases=cases,
        row_inputs=("x",),
    ),
)
