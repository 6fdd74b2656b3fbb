"""The head: collapse, final norm, logits in float32 (docs/model.md#forward)."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource


class Head:
    """The target's output matrix; the drafter uses it too, behind a norm of its own."""

    def __init__(self, source: WeightSource, backend: Backend):
        self.backend = backend
        self.norm = source.array("norm.weight")
        self.weight = backend.load_matrix(source, "head.weight")

    def logits(self, hidden: mx.array) -> mx.array:
        """Normed rows bf16 [R, D] -> float32 [R, V]."""
        return self.backend.matvec_f32(hidden, self.weight)

    def __call__(self, x: mx.array, pre: mx.array) -> mx.array:
        """Streams bf16 [R, n, D] and pre [R, n] -> logits float32 [R, V]."""
        return self.logits(self.backend.hc_collapse_norm(x, pre, self.norm))
