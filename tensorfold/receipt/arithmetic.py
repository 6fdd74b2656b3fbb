"""What the device's arithmetic does where languages leave it open: read this first when bits differ. Knows no kernel.

Answers are counts over fixed inputs; on a device that keeps the contract the first five are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import Kernel, Launch
from tensorfold.kernels.kernel import as_mlx, as_numpy
from tensorfold.proof.numerics.exact import f32, fma
from tensorfold.proof.numerics.inputs import Draw

_COUNT = 1 << 14
_OUTPUTS = ("fused", "product_sum", "quotient", "root", "rounded", "doubled", "halved", "moved")


def _plan(arrays: Sequence[Any], geometry: Any) -> Launch:
    return Launch({}, (_COUNT, 1, 1), (256, 1, 1), ((_COUNT,),) * len(_OUTPUTS), (mx.float32,) * len(_OUTPUTS))


_PROBE = Kernel(
    name="arithmetic",
    path=Path(__file__).with_name("arithmetic.metal"),
    inputs=("a", "b", "c", "tiny"),
    outputs=_OUTPUTS,
    geometries=({},),
    plan=_plan,
)


def probe(backend: str) -> dict[str, int]:
    """How many of 16384 results differ from IEEE arithmetic, and how many subnormals were kept."""
    draw = Draw(5)
    a, b, c = (draw.normal(_COUNT) for _ in range(3))
    b = np.where(b == 0, f32(1), b)
    tiny = (draw.words(_COUNT) % np.uint32(1 << 23)).view(f32)
    got = [as_numpy(y) for y in _PROBE(*map(as_mlx, (a, b, c, tiny)), backend=backend)]

    def differs(index: int, wanted: Any) -> int:
        return int(np.sum(got[index].view(np.uint32) != np.asarray(wanted, f32).view(np.uint32)))

    return {
        "fma not exact": differs(0, fma(a, b, c)),
        "p_add(p_mul) fused or reordered": differs(1, a * b + c),
        "division not correctly rounded": differs(2, a / b),
        "square root not correctly rounded": differs(3, np.sqrt(np.abs(a))),
        "rint not to even": differs(4, np.rint(a * f32(8))),
        "subnormal sums kept": _COUNT - differs(5, tiny + tiny),
        "subnormal products kept": _COUNT - differs(6, np.full(_COUNT, 1.5 * 2.0**-126, f32) * f32(0.5)),
        "subnormals moved unchanged": _COUNT - differs(7, tiny),
    }
