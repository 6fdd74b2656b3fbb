"""Comparisons of bfloat16 and float32 results; knows no bound: every test states its own, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np


def widen_bf16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) as the float32 of the same value."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_bits(values: np.ndarray | mx.array) -> np.ndarray:
    """uint16 bits of values that are bfloat16 already; ValueError when one is not representable."""
    if isinstance(values, mx.array):
        values = np.array(values.astype(mx.float32))
    values = np.ascontiguousarray(values)
    if values.dtype == np.uint16:
        return values
    wide = values.astype(np.float32).view(np.uint32)
    if values.dtype != np.float32 or (wide & 0xFFFF).any():
        raise ValueError(f"expected values already rounded to bfloat16, found {values.dtype} with lower bits set")
    return (wide >> 16).astype(np.uint16)


def _line(bits: np.ndarray) -> np.ndarray:
    """Neighbouring bfloat16 values as neighbouring integers; both zeros are 0."""
    magnitude = (bits & 0x7FFF).astype(np.int64)
    return np.where(bits & 0x8000, -magnitude, magnitude)


def ulps_bf16(a: np.ndarray | mx.array, b: np.ndarray | mx.array) -> np.ndarray:
    """Distance in bfloat16 steps, elementwise; NaN on either side counts as 1 << 16."""
    x, y = bf16_bits(a), bf16_bits(b)
    if x.shape != y.shape:
        raise ValueError(f"shapes differ: {x.shape} and {y.shape}")
    nan = ((x & 0x7FFF) > 0x7F80) | ((y & 0x7FFF) > 0x7F80)
    return np.where(nan, 1 << 16, np.abs(_line(x) - _line(y)))


def share_equal(a: np.ndarray | mx.array, b: np.ndarray | mx.array) -> float:
    """Share of elements with equal value (both zeros are equal)."""
    return float((ulps_bf16(a, b) == 0).mean())


def row_error(a: np.ndarray | mx.array, b: np.ndarray | mx.array) -> float:
    """Largest |a - b| over a row's root mean square of b, over all rows (leading axes)."""
    x, y = to_numpy(a).astype(np.float64), to_numpy(b).astype(np.float64)
    if x.shape != y.shape:
        raise ValueError(f"shapes differ: {x.shape} and {y.shape}")
    scale = np.sqrt(np.mean(y * y, -1)) + 1e-30
    return float(np.max(np.max(np.abs(x - y), -1) / scale))


def to_numpy(values: np.ndarray | mx.array) -> np.ndarray:
    """float32 (or integer) numpy of either kind of array; uint16 is read as bfloat16 bits."""
    if isinstance(values, mx.array):
        return np.array(values.astype(mx.float32) if values.dtype == mx.bfloat16 else values)
    return widen_bf16(values) if values.dtype == np.uint16 else values


@dataclass(frozen=True)
class Agreement:
    """How two bfloat16 tensors agree; rows are all axes but the last."""

    equal: float
    rows_equal: float
    steps: float
    worst_row: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.equal:.6f} of {self.count} equal, {self.rows_equal:.4f} of the rows; "
            f"at most {self.steps:.2f} steps, {self.worst_row:.2e} of a row's RMS"
        )


def agreement(a: np.ndarray | mx.array, b: np.ndarray | mx.array) -> Agreement:
    """Both in bfloat16. `steps` is |a - b| in bfloat16 steps at the size of the element or of its row's RMS, the larger
    one: elements that cancel to almost nothing carry the absolute error of their neighbours."""
    same = ulps_bf16(a, b) == 0
    x, y = to_numpy(a).astype(np.float64), to_numpy(b).astype(np.float64)
    rms = np.sqrt(np.mean(y * y, -1, keepdims=True))
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), rms) + 1e-30
    step = np.ldexp(1.0, np.frexp(size)[1] - 8)
    steps = np.where(same, 0, np.abs(x - y) / step)
    steps = np.where(np.isnan(steps), np.inf, steps)
    return Agreement(float(same.mean()), float(same.all(-1).mean()), float(steps.max()), row_error(a, b), same.size)
