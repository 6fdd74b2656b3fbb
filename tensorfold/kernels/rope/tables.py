"""Cosine and sine tables for RoPE, computed in float64 and rounded once. Knows no config: it takes numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def inverse_frequencies(
    dims: int, theta: float, factor: float = 1.0, original: int = 0, beta_fast: float = 32.0, beta_slow: float = 1.0
) -> NDArray[np.float64]:
    """Angles per position of each of the dims / 2 pairs; with factor > 1 YaRN's ramp between f and f / factor.

    Source: the model's specification, section 2 (no amplitude factor).
    """
    f = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    if factor == 1.0:
        return f

    def turns(beta: float) -> float:
        return dims * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(turns(beta_fast)), 0), min(math.ceil(turns(beta_slow)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 1e-3), 0, 1)
    return f / factor * ramp + f * (1 - ramp)


def rope_table(
    count: int,
    dims: int,
    theta: float,
    factor: float = 1.0,
    original: int = 0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> NDArray[np.float32]:
    """[count, dims / 2, 2] float32: cos and sin of position * frequency, rounded once from float64."""
    if count < 1 or dims < 2 or dims % 2:
        raise ValueError(
            f"rope_table: count {count} and dims {dims}: need at least one position and an even number of dims"
        )
    angles = np.outer(
        np.arange(count, dtype=np.float64), inverse_frequencies(dims, theta, factor, original, beta_fast, beta_slow)
    )
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
