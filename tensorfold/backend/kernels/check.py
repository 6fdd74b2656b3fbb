"""The row check at load: one layer of each role on the real weights, rows together and one by one. Knows no kernel."""

from __future__ import annotations

from itertools import zip_longest

import mlx.core as mx
import numpy as np

from tensorfold.config import ModelConfig
from tensorfold.network.attention import Shared
from tensorfold.network.engram import Gather, Run
from tensorfold.network.forward import Network
from tensorfold.network.plan import Planner, Window
from tensorfold.roles import LayerRole
from tensorfold.state.caches import PAGE_TOKENS, Caches

# slots, rows and first position of each: several slots in a launch, inside a window and far beyond it
WINDOWS = ((0, 3, 0), (1, 2, 301), (2, 1, 77))


def row_dependent_operations(network: Network, gather: Gather) -> set[str]:
    """Names of the operations that gave some row other bits among other rows than alone; empty where the law holds."""
    config, backend = network.config, network.backend
    longest = max(start + rows for _, rows, start in WINDOWS)
    pages = -(-longest // PAGE_TOKENS)
    windows: list[Window] = []
    runs: list[Run] = []
    for slot, rows, start in WINDOWS:
        ids = [(7 * slot + 13 * i + 3) % config.vocab_size for i in range(rows)]
        windows.append(Window(slot, start, ids, range(pages), [rows - 1]))
        runs.append(([], ids))
    plan = Planner(config).build(windows, len(WINDOWS), pages, gather(runs))
    caches, shared = Caches(config, len(WINDOWS), pages), Shared({})
    found: set[str] = set()
    backend.dependent = found
    try:
        s, layers = network.embed(plan.ids), [network.layers[i] for i in one_of_each_role(config)]
        for layer, following in zip_longest(layers, layers[1:]):
            backend.hc_mean(s.x)
            s, _ = layer(s, plan, caches, shared, following)
        logits = network.head(s.x[plan.head], s.pre[plan.head])
        backend.hc_collapse(s.x, s.pre)
        if backend.draw is not None:
            backend.draw(logits, *_sampling(len(WINDOWS)))
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
