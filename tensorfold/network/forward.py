"""The target network: one forward over the rows of a round; reads caches and writes none,
knows no slots' stories and no sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.config import ModelConfig
from tensorfold.network.attention import Attention, Shared
from tensorfold.network.compressor import NewRows
from tensorfold.network.engram import Engram
from tensorfold.network.head import Head
from tensorfold.network.hyper import HyperConnection, first_streams
from tensorfold.network.moe import Moe
from tensorfold.network.plan import Plan
from tensorfold.roles import LayerRole
from tensorfold.state.caches import Caches


@dataclass(frozen=True)
class Forward:
    """What a round computed: logits float32 [h, V] of the plan's head rows, taps bf16 [R, taps * D],
    new rows for the caches."""

    logits: mx.array | None
    taps: mx.array | None
    window: list[mx.array]
    sources: dict[int, NewRows]


class Layer:
    """One layer of the target."""

    def __init__(self, source: WeightSource, role: LayerRole, config: ModelConfig, backend: Backend):
        prefix = f"layers.{role.layer}"
        self.role = role
        self.engram = Engram(source, prefix, backend) if role.engram is not None else None
        self.attn_hc = HyperConnection(source, prefix, "attn", backend)
        self.attention = Attention(source, prefix, role, config, backend)
        self.ffn_hc = HyperConnection(source, prefix, "ffn", backend)
        self.moe = Moe(source, prefix, config, backend, config.n_routed_experts, config.num_experts_per_tok)

    def __call__(
        self, x: mx.array, pre: mx.array, plan: Plan, caches: Caches, shared: Shared
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Streams and pre -> streams, pre and this round's packed window rows."""
        x, pre, window = self.attn_hc(x, pre, lambda h: self.attention(h, plan, caches, shared))
        x, pre, _ = self.ffn_hc(x, pre, lambda h: (self.moe(h), None))
        return x, pre, window


class Network:
    """Embedding, layers and head."""

    def __init__(
        self, source: WeightSource, config: ModelConfig, backend: Backend, on_layer: Callable[[], object] = lambda: None
    ):
        self.config, self.backend = config, backend
        self.embedding = source.array("embed.weight")
        self.layers = []
        for role in config.roles:
            self.layers.append(Layer(source, role, config, backend))
            on_layer()
        self.head = Head(source, backend)

    def embed(self, ids: mx.array) -> tuple[mx.array, mx.array]:
        """int32 [R] -> streams bf16 [R, n, D] and the first pre."""
        return first_streams(self.backend.embed(ids, self.embedding), self.config.hc_mult)

    def __call__(self, plan: Plan, caches: Caches, watch: list[mx.array] | None = None) -> Forward:
        """One forward over the plan's rows; `watch` collects, after each layer, whether everything was finite."""
        x, pre = self.embed(plan.ids)
        shared, window, taps = Shared({}), [], []
        for layer in self.layers:
            if layer.engram is not None and layer.role.engram is not None:
                x = layer.engram(x, *plan.engram[layer.role.engram])
            if layer.role.tap is not None:
                taps.append(self.backend.hc_mean(x))
            x, pre, row = layer(x, pre, plan, caches, shared)
            window.append(row)
            if watch is not None:
                watch.append(mx.all(mx.abs(x) < mx.inf) & mx.all(mx.abs(pre) < mx.inf))
        logits = self.head(x[plan.head], pre[plan.head]) if plan.head.size else None
        return Forward(logits, mx.concatenate(taps, -1) if taps else None, window, shared.new)
