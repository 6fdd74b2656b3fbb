"""An index source's indexer: scores over compressed rows, candidate blocks, selection (docs/model.md#indexer)."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Candidates, Columns, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.config import ModelConfig
from tensorfold.network.plan import Plan
from tensorfold.roles import LayerRole


class Indexer:
    """One index source layer; its query matrix shares an input with wq_b and is multiplied there."""

    def __init__(self, source: WeightSource, prefix: str, role: LayerRole, config: ModelConfig, backend: Backend):
        self.backend, self.role, self.config = backend, role, config
        self.weights_proj = backend.load_matrix(source, f"{prefix}.attn.indexer.weights_proj.weight")
        self.scale = float(np.float32(config.index_head_dim**-0.5 * config.index_n_heads**-0.5))

    def queries(self, flat: mx.array, table: mx.array) -> mx.array:
        """bf16 [R, heads * dim] -> packed queries uint8 [R, heads, bytes]."""
        c = self.config
        q = flat.reshape(-1, c.index_n_heads, c.index_head_dim)
        return self.backend.norm_rope_pack(q, None, table, RowKind.KEY)

    def head_weights(self, x: mx.array) -> mx.array:
        """bf16 [R, D] -> bf16 [R, heads]."""
        w = self.backend.matvec_bf16(x, self.weights_proj)
        return (w.astype(mx.float32) * self.scale).astype(mx.bfloat16)

    def __call__(
        self,
        queries: mx.array,
        weights: mx.array,
        keys: Columns,
        plan: Plan,
        visible: mx.array,
        candidates: Candidates | None,
    ) -> tuple[mx.array, Candidates | None]:
        """Selected rows int32 [R, k] and the candidates for later index sources."""
        b, topk = self.backend, self.config.index_topk
        if keys.places.shape[1] <= topk and self.role.candidates != "write":
            # every visible row is taken, whatever its score
            scores = mx.zeros((queries.shape[0], keys.places.shape[1]))
        else:
            scores = b.index_scores(queries, weights, keys, [s.rows for s in plan.segments], plan.owner)
        if self.role.candidates == "write":
            return b.select(scores, visible, None, topk), b.candidate_blocks(scores, visible)
        return b.select(scores, visible, candidates if self.role.candidates == "read" else None, topk), candidates
