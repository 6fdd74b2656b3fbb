"""Weights that were never trained: tensors of a config drawn on the device as they are asked for. Knows no layer.

Codes and scales are plausible and finite, so that routing differs from row to row and nothing overflows.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.backend.kernels.weights import ROW
from tensorfold.checkpoint.inventory import expected_tensors
from tensorfold.config import ModelConfig

_RAW = {"F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "I8": np.uint8, "BF16": np.uint16, "F32": np.float32}


class RandomSource:
    """A `WeightSource` of every tensor that the config names."""

    def __init__(self, config: ModelConfig):
        self._specs = expected_tensors(config)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def names(self, prefix: str) -> list[str]:
        """Names that begin so."""
        return [name for name in self._specs if name.startswith(prefix)]

    def raw(self, name: str) -> np.ndarray:
        """Shape and type alone; the values mean nothing."""
        spec = self._specs[name]
        return np.broadcast_to(np.zeros((), _RAW[spec.dtype]), spec.shape)

    def array(self, name: str) -> mx.array:
        spec = self._specs[name]
        if spec.dtype == "F8_E4M3":
            out = _words(spec.shape) & 0xBFBFBFBF  # magnitudes below 2, no NaN
        elif spec.dtype == "F8_E8M0":
            out = (_words(spec.shape) & 0x03030303) | 0x74747474  # 116 .. 119
        else:
            values = mx.random.normal(spec.shape) * (0.02 if len(spec.shape) > 1 else 0.1)
            values = values + 1 if name.endswith("norm.weight") else values
            out = values.astype(mx.bfloat16) if spec.dtype == "BF16" else values
        if spec.dtype.startswith("F8"):
            out = out.view(mx.uint8)[: int(np.prod(spec.shape))].reshape(spec.shape)
        mx.eval(out)
        return out

    def alignment(self, name: str) -> int:
        return 16

    def mapped(self, names: Sequence[str]) -> tuple[mx.array, list[int]]:
        """One run of bytes that serve as codes of either sign and as scales 112 .. 119 alike."""
        places, end = [], 0
        for name in names:
            places.append(end)
            end += -(-int(np.prod(self._specs[name].shape)) // 16) * 16
        words = (_bits(-(-end // ROW), ROW // 4) & 0x07070707) | 0x70707070
        out = words.view(mx.uint8)
        mx.eval(out)
        return out, places


def _words(shape: Sequence[int]) -> mx.array:
    """Random uint32 words that hold at least as many bytes as the shape has elements."""
    return _bits(-(-int(np.prod(shape)) // 4))


def _bits(*shape: int) -> mx.array:
    """Random uint32 words below 2^31."""
    return mx.random.randint(0, 2**31 - 1, shape, mx.int32).view(mx.uint32)
