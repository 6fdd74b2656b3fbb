"""Engram: n-gram rows read from the mapped tables on the host, injected into the streams (the model's specification,
section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.config import ModelConfig
from tensorfold.network.engram_hash import EngramHash


class EngramTables:
    """The tables as they lie in the mapping; a row is read when a token asks for it."""

    def __init__(self, source: WeightSource, config: ModelConfig, token_map: np.ndarray | None):
        names = [f"layers.{layer}.engram.embed" for layer in config.engram_layer_ids]
        self._tables = [(source.raw(n + ".weight"), source.raw(n + ".scale")) for n in names]
        self._hash = EngramHash(config, token_map) if names and token_map is not None else None

    def __call__(self, history: Sequence[int], ids: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows of `ids` after `history` (its last few ids suffice): per layer
        codes uint8 [R, n, d] and scales uint8 [R, n, d/32]."""
        if self._hash is None:
            return []
        rows = self._hash.rows(ids, history[-self._hash.history :])
        return [(codes[r], scales[r]) for (codes, scales), r in zip(self._tables, rows)]


class Engram:
    """The injection of one layer."""

    def __init__(self, source: WeightSource, prefix: str, backend: Backend):
        self.backend = backend
        self.wkv = backend.load_fp8(source, [f"{prefix}.engram.wkv"])
        self.q_weight, self.k_weight = (source.array(f"{prefix}.engram.{n}_weight") for n in "qk")

    def __call__(self, x: mx.array, codes: mx.array, scales: mx.array) -> mx.array:
        """bf16 [R, n, D] and the gathered rows -> bf16 [R, n, D]."""
        b = self.backend
        kv = b.matvec_fp8(b.act_quant_fp8(b.engram_rows(codes, scales)), self.wkv)
        return b.engram_inject(x, kv, self.q_weight, self.k_weight)
