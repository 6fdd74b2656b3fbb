"""The row check at load: one layer of each role on the real weights, in launches of many rows and of few.

Knows no operation by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import mlx.core as mx
import numpy as np

from tensorfold.config import ModelConfig
from tensorfold.network.attention import Shared
from tensorfold.network.engram import Gather, Lookup
from tensorfold.network.forward import Network
from tensorfold.network.plan import Planner, Segment
from tensorfold.roles import LayerRole
from tensorfold.state.caches import PAGE_TOKENS, Caches

# slots, sixths of a launch's rows and first position of each: inside a window and far beyond it
SLOTS = ((0, 3, 0), (1, 2, 301), (2, 1, 77))


def row_dependent_operations(
    network: Network, gather: Gather, on_layer: Callable[[], object] = lambda: None
) -> set[str]:
    """Names of the operations that gave some row other bits among other rows than in a smaller launch; empty where the
    row law holds. Kernels are compiled on the way; `on_layer` hears of each layer of `one_of_each_role`."""
    config, backend = network.config, network.backend
    segments: list[Segment] = []
    lookups: list[Lookup] = []
    counts = [sixths * backend.trial_rows // 6 for _, sixths, _ in SLOTS]
    pages = -(-max(start + rows for rows, (_, _, start) in zip(counts, SLOTS)) // PAGE_TOKENS)
    for rows, (slot, _, start) in zip(counts, SLOTS):
        ids = [(7 * slot + 13 * i + 3) % config.vocab_size for i in range(rows)]
        segments.append(Segment(slot, start, ids, range(pages), range(rows)))
        lookups.append(([], ids))
    plan = Planner(config).build(segments, len(SLOTS), pages, gather(lookups))
    caches, shared = Caches(config, len(SLOTS), pages), Shared({})
    found: set[str] = set()
    backend.dependent = found
    try:
        s, layers = network.embed(plan.ids), [network.layers[i] for i in one_of_each_role(config)]
        for layer, following in zip_longest(layers, layers[1:]):
            s = layer.inject(s, plan)
            backend.hc_mean(s.x)
            s, _ = layer(s, plan, caches, shared, following)
            on_layer()
        logits = network.head(s.x, s.pre)
        backend.hc_collapse(s.x, s.pre)
        if backend.draw is not None:
            backend.draw(logits, *_sampling(plan.rows))
    finally:
        backend.dependent = None
    return found


def kind_of(role: LayerRole) -> tuple[object, ...]:
    """What decides which operations a layer runs."""
    return role.ratio, role.owns_kv, role.owns_index, role.candidates, role.engram is not None


def _sampling(rows: int) -> tuple[mx.array, mx.array, mx.array]:
    """Temperature, seed and position of each row, the first of them greedy."""
    row = np.arange(rows)
    return mx.array(row / 2.0), mx.array(np.stack([row, row + 1], 1).astype(np.uint32)), mx.array(row.astype(np.int32))


def one_of_each_role(config: ModelConfig) -> list[int]:
    """The first layer of each kind and the sources they read, in order."""
    first = {kind_of(r): r for r in reversed(config.roles)}
    wanted = {i for r in first.values() for i in (r.layer, r.kv_source, r.index_source) if i is not None}
    return sorted(wanted)
