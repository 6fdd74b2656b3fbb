"""moe_up and moe_down: float64 truths and bounds. Knows no launch.

Source: docs/model.md#numbers and docs/model.md#experts. Compositions of `experts` and `matvec`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.experts.reference import experts_down, experts_up, magnitude
from tensorfold.proof.families.matvec.reference import fp8_magnitude, matvec_fp8
from tensorfold.proof.proof import Bound

ROUTED = 5  # inputs of the routed part: x, ids, shard, place, origin


def shared_up(arrays: Sequence[Array]) -> list[Array]:
    """What the pair of shared matrices takes of moe_up's inputs: w1, s1, w3, s3 and the x of the routed part."""
    return [*arrays[ROUTED:], arrays[0]]


def shared_down(arrays: Sequence[Array]) -> list[Array]:
    """What the shared matrix takes of moe_down's inputs: w2, s2, x."""
    return [*arrays[ROUTED:]]


def moe_up(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """float64 truth of both parts."""
    return [*experts_up(*arrays[:ROUTED], n=n), *matvec_fp8(*shared_up(arrays))]


def moe_down(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """float64 truth of both parts."""
    return [*experts_down(*arrays[:ROUTED], n=n), *matvec_fp8(*shared_down(arrays))]


def _magnitude(arrays: Sequence[Array], shared: Sequence[Array], n: int) -> list[Array]:
    return [*(np.float64(64) * m for m in magnitude(*arrays[:ROUTED], n=n)), *fp8_magnitude(*shared)]


def magnitude_up(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """Roundings times sums of magnitudes: 64 of the routed part, what matvec counts of the shared."""
    return _magnitude(arrays, shared_up(arrays), n)


def magnitude_down(*arrays: Array, n: int, **widths: int) -> list[Array]:
    """Roundings times sums of magnitudes: 64 of the routed part, what matvec counts of the shared."""
    return _magnitude(arrays, shared_down(arrays), n)


def _bound(up: bool) -> Bound:
    return Bound(
        "each part's own bound: one rounding to bfloat16 (0.5 ulp), and of float32 sums 64 roundings of the sum of "
        "magnitudes for FP4, what matvec counts for FP8; a flush may cost 2^-126 at each of at most 512 blocks",
        ulps=0.5,
        absolute=2.0**-24,
        tiny=1024 * 2.0**-126,
        scale=magnitude_up if up else magnitude_down,
    )


BOUNDS = {
    "moe_up": _bound(True),
    "moe_down": _bound(False),
}
