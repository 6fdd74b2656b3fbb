"""Drafts for the next round, from what this one is about to keep, all on the device; knows no layers."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.engine.pick import pick
from tensorfold.engine.rows import RowParams
from tensorfold.engine.schedule import Lane
from tensorfold.engine.verify import Verdict
from tensorfold.network.dspark import Drafter
from tensorfold.network.rope import RopeTables
from tensorfold.state.caches import Caches


def propose(
    drafter: Drafter, lanes: Sequence[Lane], verdict: Verdict, caches: Caches, rope: RopeTables
) -> mx.array | None:
    """Drafts int32 [S, B] of the S lanes that want some, in their order; None where none does."""
    drafting = [i for i, lane in enumerate(lanes) if lane.wants]
    if not drafting:
        return None
    block, some = drafter.block, mx.array(np.array(drafting, np.int32))
    chosen = [lanes[i] for i in drafting]
    starts = np.array([lane.segment.start for lane in chosen], np.int32)
    ends = starts + np.array([lane.segment.known for lane in chosen], np.int32)
    last = mx.array(starts) + verdict.kept[some] - 1
    spare = max(lane.segment.drafts for lane in chosen)
    positions = ends[:, None] + np.arange(spare + block)
    tables = rope.window(positions.reshape(-1))
    ahead = (last + 1)[:, None] + mx.arange(block)[None] - mx.array(ends)[:, None]
    flat = mx.arange(len(chosen))[:, None] * (spare + block) + mx.clip(ahead, 0, spare + block - 1)
    slots = [lane.slot for lane in chosen]
    rows = RowParams.build(
        [s.params for s in slots], last, [s.ids if s.params.looks_back else () for s in slots],
        [s.reply_start for s in slots], [s.banned(len(s.ids) + 1) for s in slots],
    )  # fmt: skip
    places = mx.array(np.array([s.place for s in slots], np.int32))
    where = caches, places, verdict.last[some], last, tables[flat]
    own = drafter.backend.draw
    if own is not None and rows.plain:
        return drafter.propose_warm(*where, *rows.warmth(len(chosen))[:2])

    def draw(i: int, logits: mx.array, before: mx.array) -> mx.array:
        step = rows.at(last + (2 + i), mx.concatenate([verdict.tokens[some], before], 1))
        return pick(logits, step, draw=own).ids

    return drafter.propose(*where, draw).ids
