"""Rotary tables: the angle of a position is rounded to float32 as published,
its cosine and sine are float64 rounded once."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

from tensorfold.config import ModelConfig


def window_frequencies(config: ModelConfig) -> np.ndarray:
    """float32 [rd/2]: the plain frequencies of ratio-0 layers (docs/model.md#numbers)."""
    return _plain(config.rope_theta, config.qk_rope_head_dim)


def compressed_frequencies(config: ModelConfig) -> np.ndarray:
    """float32 [rd/2]: YaRN-blended frequencies of layers with compressed rows."""
    rd, base = config.qk_rope_head_dim, config.compress_rope_theta
    plain = _plain(base, rd)

    def turn(rotations: float) -> float:
        span = config.original_max_position_embeddings / (rotations * 2 * math.pi)
        return rd * math.log(span) / (2 * math.log(base))

    low, high = max(math.floor(turn(config.beta_fast)), 0), min(math.ceil(turn(config.beta_slow)), rd - 1)
    steps = np.arange(rd // 2, dtype=np.float32) - np.float32(low)
    ramp = np.clip(steps / np.float32(max(high - low, 1e-3)), 0, 1).astype(np.float32)
    return plain / np.float32(config.rope_factor) * ramp + plain * (np.float32(1) - ramp)


def _plain(base: float, rd: int) -> np.ndarray:
    power = np.power(float(base), np.arange(0, rd, 2) / rd).astype(np.float32)
    return (np.float32(1) / power).astype(np.float32)


class RopeTables:
    """Tables for the positions of a round, made on the host."""

    def __init__(self, config: ModelConfig):
        self._window, self._compressed = window_frequencies(config), compressed_frequencies(config)

    def window(self, positions: np.ndarray) -> mx.array:
        """int [R] -> float32 [R, rd/2, 2], cosine and sine."""
        return _table(positions, self._window)

    def compressed(self, positions: np.ndarray) -> mx.array:
        """int [R] -> float32 [R, rd/2, 2], cosine and sine."""
        return _table(positions, self._compressed)


def _table(positions: np.ndarray, frequencies: np.ndarray) -> mx.array:
    angle = (positions.astype(np.float32)[:, None] * frequencies).astype(np.float64)
    return mx.array(np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32))
