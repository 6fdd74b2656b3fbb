"""The expert feed-forward: route, routed experts, shared expert, join (docs/model.md#experts)."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.base import Backend, Output, Quantised, WeightSource
from tensorfold.config import ModelConfig
from tensorfold.network.streaming import ExpertPool


class Moe:
    """Routed and shared experts of one layer."""

    def __init__(
        self, source: WeightSource, prefix: str, config: ModelConfig, backend: Backend, experts: int, active: int,
        pool: ExpertPool | None = None,
    ):  # fmt: skip
        """pool: where routed experts are streamed through, None for experts that stay in memory."""
        self.backend, self.active = backend, active
        ffn = f"{prefix}.ffn"
        self.gate = backend.load_matrix(source, f"{ffn}.gate.weight")
        self.bias = source.array(f"{ffn}.gate.bias")
        self.streamed = None if pool is None else pool.layer(f"{ffn}.experts", experts)
        self.experts = None if pool is not None else backend.load_experts(source, f"{ffn}.experts", experts)
        self.shared_in = backend.load_fp8(source, [f"{ffn}.shared_experts.w1", f"{ffn}.shared_experts.w3"])
        self.shared_out = backend.load_fp8(source, [f"{ffn}.shared_experts.w2"])

    def route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """bf16 [R, D] -> expert ids int32 [R, k] ascending, weights float32 [R, k]."""
        return self.backend.route(self.backend.matvec_f32(x, self.gate), self.bias, self.active)

    def __call__(self, x: mx.array, quantised: Quantised) -> Output:
        """bf16 [R, D], plain and quantised -> the sublayer's output for `hc_leave`."""
        ids, weights = self.route(x)
        if self.streamed is not None:
            return self.streamed(quantised, ids, weights, self.shared_in, self.shared_out)
        return self.backend.moe(quantised, ids, weights, self.experts, self.shared_in, self.shared_out)
