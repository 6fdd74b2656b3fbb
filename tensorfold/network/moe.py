"""The expert feed-forward: route, routed experts, shared expert, join (the model's specification, section 6)."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.config import ModelConfig


class Moe:
    """Routed and shared experts of one layer."""

    def __init__(
        self, source: WeightSource, prefix: str, config: ModelConfig, backend: Backend, experts: int, active: int
    ):
        self.backend, self.active = backend, active
        ffn = f"{prefix}.ffn"
        self.gate = backend.load_f32(source, f"{ffn}.gate.weight")
        self.bias = source.array(f"{ffn}.gate.bias")
        self.experts = backend.load_experts(source, f"{ffn}.experts", experts)
        self.shared_in = backend.load_fp8(source, [f"{ffn}.shared_experts.w1", f"{ffn}.shared_experts.w3"])
        self.shared_out = backend.load_fp8(source, [f"{ffn}.shared_experts.w2"])

    def route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """bf16 [R, D] -> expert ids int32 [R, k] ascending, weights float32 [R, k]."""
        return self.backend.route(self.backend.matvec_f32(x, self.gate), self.bias, self.active)

    def __call__(self, x: mx.array) -> mx.array:
        """bf16 [R, D] -> bf16 [R, D]."""
        b = self.backend
        ids, weights = self.route(x)
        q = b.act_quant_fp8(x)
        routed = b.experts(q, ids, weights, self.experts)
        gate, up = mx.split(b.matvec_fp8(q, self.shared_in), 2, -1)
        shared = b.matvec_fp8(b.act_quant_fp8(b.swiglu(gate, up)), self.shared_out)
        return b.moe_join(routed, shared)
