"""The target network: one forward over the rows of a round; reads caches and writes none,
knows no slots' stories and no sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.config import ModelConfig
from tensorfold.network.attention import Attention, Shared
from tensorfold.network.compressor import NewRows
from tensorfold.network.engram import Engram
from tensorfold.network.head import Head
from tensorfold.network.hyper import HyperConnection, Streams, first_streams
from tensorfold.network.moe import Moe
from tensorfold.network.plan import Plan
from tensorfold.network.streaming import ExpertPool
from tensorfold.roles import LayerRole
from tensorfold.state.caches import Caches


@dataclass(frozen=True)
class Forward:
    """What a round computed: logits float32 [h, V] of the plan's head rows, taps bf16 [r, taps * D] of the rows that
    ran all tapped layers, and new rows for the caches: packed window rows of those that ran a layer, up to the last
    layer that any did."""

    logits: mx.array | None
    taps: mx.array | None
    window: list[mx.array]
    sources: dict[int, NewRows]


class Layer:
    """One layer of the target."""

    def __init__(
        self, source: WeightSource, role: LayerRole, config: ModelConfig, backend: Backend, pool: ExpertPool | None
    ):
        prefix = f"layers.{role.layer}"
        self.role = role
        self.engram = Engram(source, prefix, backend) if role.engram is not None else None
        self.attn_hc = HyperConnection(source, prefix, "attn", backend)
        self.attention = Attention(source, prefix, role, config, backend)
        self.ffn_hc = HyperConnection(source, prefix, "ffn", backend)
        self.moe = Moe(source, prefix, config, backend, config.n_routed_experts, config.num_experts_per_tok, pool)

    def inject(self, s: Streams, plan: Plan) -> Streams:
        """The streams after this layer's Engram, if it has one: what its sublayers and its tap read."""
        if self.engram is None or self.role.engram is None:
            return s
        return Streams(self.engram(s.x, *plan.engram[self.role.engram]), s.pre)

    def __call__(
        self, s: Streams, plan: Plan, caches: Caches, shared: Shared, following: Layer | None
    ) -> tuple[Streams, mx.array]:
        """Streams of `inject` -> streams and packed window rows of those that run this layer; `following` is the layer
        that comes next."""
        untouched = following.attn_hc if following is not None and following.engram is None else None
        rows = plan.reach[self.role.layer]
        s, window = self.attn_hc(s, lambda h, q: self.attention(h, q, plan, caches, shared), self.ffn_hc, rows)
        s, _ = self.ffn_hc(s, lambda h, q: (self.moe(h, q), None), untouched)
        return s, window

    def store(self, s: Streams, plan: Plan, caches: Caches, shared: Shared) -> None:
        """What a KV source makes of rows that all end here."""
        self.attention.store(self.attn_hc.enter(s).hidden, plan, caches, shared)


class Network:
    """Embedding, layers and head."""

    def __init__(
        self, source: WeightSource, config: ModelConfig, backend: Backend,
        on_layer: Callable[[], object] = lambda: None, pool: ExpertPool | None = None,
    ):  # fmt: skip
        """pool: where routed experts are streamed through, None for experts that stay in memory."""
        self.config, self.backend = config, backend
        self.traceable = backend.traceable and pool is None  # a graph cannot hold the reads of a streamed layer
        self.embedding = source.array("embed.weight")
        self.layers = []
        for role in config.roles:
            self.layers.append(Layer(source, role, config, backend, pool))
            on_layer()
        self.head = Head(source, backend)
        self.tapped = max((r.layer for r in config.roles if r.tap is not None), default=None)

    def embed(self, ids: mx.array) -> Streams:
        """int32 [R] -> the first streams."""
        return first_streams(self.backend.embed(ids, self.embedding), self.config.hc_mult)

    def __call__(self, plan: Plan, caches: Caches, watch: list[mx.array] | None = None) -> Forward:
        """One forward over the plan's rows; `watch` collects, after each layer, whether everything was finite."""
        s = self.embed(plan.ids)
        shared, window, taps = Shared({}), [], []
        for layer, following in zip_longest(self.layers, self.layers[1:]):
            rows = plan.reach[layer.role.layer]
            if not layer.role.owns_kv:  # which stores every row's, and goes on with fewer
                s, plan = s.first(rows), plan.first(rows)
                shared.keep_first(rows)
            if not plan.rows:
                break
            s = layer.inject(s, plan)
            if not rows:
                layer.store(s, plan, caches, shared)
                break
            if layer.role.tap is not None:
                taps.append(self.backend.hc_mean(s.x))
            s, row = layer(s, plan, caches, shared, following)
            window.append(row)
            if watch is not None:
                watch.append(mx.all(mx.abs(s.x) < mx.inf) & mx.all(mx.abs(s.pre) < mx.inf))
        logits = self.head(s.x[plan.head], s.pre[plan.head]) if plan.head.size else None
        tapped = self.tapped_rows(plan)
        joined = mx.concatenate([tap[:tapped] for tap in taps], -1) if tapped else None
        return Forward(logits, joined, window, shared.new)

    def tapped_rows(self, plan: Plan) -> int:
        """How many rows run all tapped layers."""
        return 0 if self.tapped is None else plan.reach[self.tapped]
