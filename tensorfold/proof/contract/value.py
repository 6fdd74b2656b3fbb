"""Gate 2's measure: how far values may lie from the float64 truth. Knows no kernel but its bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import from_bits
from tensorfold.proof.proof import Bound

_MANTISSA = {np.dtype(np.uint16): 7, np.dtype(np.float32): 23}
_LARGEST = {np.dtype(np.uint16): (2 - 2.0**-7) * 2.0**127, np.dtype(np.float32): (2 - 2.0**-23) * 2.0**127}


def values(array: Array) -> NDArray[np.float64]:
    """What an output holds, in float64 (uint16 is bfloat16)."""
    with np.errstate(invalid="ignore"):
        if array.dtype == np.uint16:
            return from_bits(array.astype(np.uint32) << 16).astype(np.float64)
        return array.astype(np.float64)


def ulp(truth: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """The spacing of `dtype` at these values, not below its smallest normal."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.clip(np.abs(truth), 2.0**-126, _LARGEST[dtype]))
    return np.ldexp(1.0, exponent - 1 - _MANTISSA[dtype])


def outside(
    bound: Bound, outputs: Sequence[Array], truths: Sequence[Array], arrays: Sequence[Array], options: Mapping[str, Any]
) -> tuple[list[str], float]:
    """(complaints, largest error as a part of what is allowed) of one run."""
    if len(outputs) != len(truths):
        return [f"{len(outputs)} outputs, the reference has {len(truths)}"], 0.0
    scales = bound.scale(*arrays, **options) if bound.scale else [np.float64(1)] * len(outputs)
    found, worst = [], 0.0
    for index, (output, truth, scale) in enumerate(zip(outputs, truths, scales)):
        if output.dtype not in _MANTISSA:
            wrong = int(np.sum(output != truth))
            if wrong or output.shape != np.shape(truth):
                found.append(f"output {index}: {wrong} of {output.size} integers differ")
            continue
        message, part = _floats(bound, output, np.asarray(truth, np.float64), np.asarray(scale, np.float64))
        worst = max(worst, part)
        if message:
            found.append(f"output {index}: {message}")
    return found, worst


def _floats(
    bound: Bound, output: Array, truth: NDArray[np.float64], scale: NDArray[np.float64]
) -> tuple[str | None, float]:
    value = values(output)
    if value.shape != truth.shape:
        return f"shape {value.shape}, the reference has {truth.shape}", np.inf
    largest = _LARGEST[output.dtype]
    step = ulp(truth, output.dtype)
    with np.errstate(all="ignore"):
        allowed = bound.ulps * step + bound.relative * np.abs(truth) + bound.absolute * scale + bound.tiny
        special = ~np.isfinite(truth) | ~np.isfinite(value)
        error = np.where(special, 0.0, np.abs(value - truth))
        overflow = np.isinf(value) & (np.sign(value) == np.sign(truth)) & (np.abs(truth) + allowed >= largest)
        wrong = (special & ~(np.isnan(value) & np.isnan(truth)) & (value != truth) & ~overflow) | (error > allowed)
        part = float(np.max(np.where(special | np.isnan(allowed), 0.0, error / allowed), initial=0.0))
    if not wrong.any():
        return None, part
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    first = f"first at {at}: {float(value[at])}, truth {float(truth[at])}, allowed {allowed[at]:.3g}"
    return f"{int(wrong.sum())} of {wrong.size} outside, {first}", part
