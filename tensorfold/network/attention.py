"""Attention of one layer: window rows, selected compressed rows, sink, grouped output (docs/model.md#attention)."""

from __future__ import annotations

from dataclasses import dataclass, field

import mlx.core as mx

from tensorfold.backend.base import Backend, Candidates, Columns, Quantised, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig
from tensorfold.network.compressor import Compressor, NewRows
from tensorfold.network.indexer import Indexer
from tensorfold.network.plan import Plan
from tensorfold.roles import LayerRole
from tensorfold.state.caches import Caches


@dataclass
class Shared:
    """What layers of a round hand on: new rows by KV source, the selection of the nearest index source,
    its places by compression ratio, candidate blocks."""

    new: dict[int, NewRows]
    selection: mx.array | None = None
    places: dict[int, mx.array] = field(default_factory=dict)
    candidates: Candidates | None = None

    def keep_first(self, rows: int) -> None:
        """Lets go of what belongs to other rows than the first ones; new rows are everybody's."""
        self.selection, self.candidates = (None if a is None else a[:rows] for a in (self.selection, self.candidates))
        self.places = {ratio: places[:rows] for ratio, places in self.places.items()}


class Projections:
    """Query, key-value and output matrices; the drafter's stages have them too."""

    def __init__(self, source: WeightSource, prefix: str, config: ModelConfig, backend: Backend, indexer: bool = False):
        self.config, self.backend = config, backend
        p = f"{prefix}.attn"
        self.first = backend.load_fp8(source, [f"{p}.wq_a", f"{p}.wkv"])
        self.second = backend.load_fp8(source, [f"{p}.wq_b"] + [f"{p}.indexer.wq_b"] * indexer)
        self.wo_a = backend.load_fp8(source, [f"{p}.wo_a"], groups=config.o_groups)
        self.wo_b = backend.load_fp8(source, [f"{p}.wo_b"])
        self.q_norm, self.kv_norm = source.array(f"{p}.q_norm.weight"), source.array(f"{p}.kv_norm.weight")
        self.sink = source.array(f"{p}.attn_sink")

    def queries_and_row(self, x: Quantised, table: mx.array) -> tuple[mx.array, mx.array | None, mx.array]:
        """Quantised rows -> queries bf16 [R, H, hd] before RoPE, flat index queries (or none), packed window rows."""
        b, c = self.backend, self.config
        low, kv = b.matvecs_fp8(x, self.first)
        low, row = b.attn_norms(low, self.q_norm, kv, self.kv_norm, table)
        q, *index = b.matvecs_fp8(low, self.second)
        return q.reshape(-1, c.num_attention_heads, c.head_dim), index[0] if index else None, row

    def attend(self, q: mx.array, table: mx.array, columns: list[Columns]) -> mx.array:
        """Queries before RoPE and runs of columns -> bf16 [R, D]: attended, turned back, grouped wo_a, wo_b."""
        b = self.backend
        o = b.attend_rotated(q, table, columns, self.sink)
        return b.matvec_fp8(b.grouped_quantised(o.reshape(o.shape[0], -1), self.wo_a), self.wo_b)


class Attention:
    """Attention of one target layer; reads caches, returns this round's new rows, writes nothing."""

    def __init__(self, source: WeightSource, prefix: str, role: LayerRole, config: ModelConfig, backend: Backend):
        self.role, self.config, self.backend = role, config, backend
        self.projections = Projections(source, prefix, config, backend, indexer=role.owns_index)
        self.indexer = Indexer(source, prefix, role, config, backend) if role.owns_index else None
        self.compressor = Compressor(source, prefix, role.ratio, backend) if role.owns_kv else None

    def __call__(
        self, x: mx.array, quantised: Quantised, plan: Plan, caches: Caches, shared: Shared
    ) -> tuple[mx.array, mx.array]:
        """bf16 [R, D], plain and quantised -> bf16 [r, D] and packed window rows of the r rows that run this layer;
        updates `shared`."""
        role, p, rows = self.role, self.projections, plan.reach[self.role.layer]
        plan = plan.first(rows)
        table = plan.compressed_table if role.ratio else plan.window_table
        q, index, row = p.queries_and_row(quantised[:rows], table)
        columns = [Columns(caches.window[role.layer], row, plan.window, RowKind.WINDOW)]
        source = role.kv_source
        if source is not None:
            part = plan.compressed[role.ratio]
            self.store(x, plan, caches, shared)
            new = shared.new[source]
            if self.indexer and index is not None:
                keys = Columns(caches.keys[source], new.keys, part.places, RowKind.KEY)
                queries, weights = self.indexer.queries(index, table), self.indexer.head_weights(x[:rows])
                shared.selection, shared.candidates = self.indexer(
                    queries, weights, keys, plan, part.visible[: plan.rows], shared.candidates
                )
                shared.places.clear()
            if shared.selection is None:
                raise ValueError(f"layer {role.layer} has no index source before it")
            if role.ratio not in shared.places:
                shared.places[role.ratio] = selected_places(shared.selection, part.places, plan.owner)
            columns.append(Columns(caches.rows[source], new.rows, shared.places[role.ratio], RowKind.COMPRESSED))
        return p.attend(q, table, columns), row

    def store(self, x: mx.array, plan: Plan, caches: Caches, shared: Shared) -> None:
        """What a KV source makes of every row, also of those that end here: compressed rows, keys, open pairs."""
        if self.compressor:
            layer, part = self.role.layer, plan.compressed[self.role.ratio]
            shared.new[layer] = self.compressor(x, part, caches.pairs.get(layer))


def selected_places(selection: mx.array, places: mx.array, segment: mx.array) -> mx.array:
    """Selected rows int32 [R, k] of each row's slot -> their places int32 [R, k], -1 kept."""
    flat = segment[:, None] * places.shape[1] + mx.maximum(selection, 0)
    return mx.where(selection >= 0, places.reshape(-1)[flat], -1)
