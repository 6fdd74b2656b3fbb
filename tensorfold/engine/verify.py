"""What a round keeps, decided on the device: each slot's longest prefix of drafts that equal what the target drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.engine.pick import Picked
from tensorfold.network.plan import Segment


@dataclass(frozen=True)
class Verdict:
    """Per segment: rows kept int32 [S], drawn tokens int32 [S, K+1] with -1 beyond the last, the last one int32 [S],
    its finiteness."""

    kept: mx.array
    tokens: mx.array
    last: mx.array
    finite: mx.array


def judge(picked: Picked | None, segments: Sequence[Segment]) -> Verdict:
    """Compares drafts with draws; a row whose logits are not finite is not kept.

    No draft ends a reply: slots leave such a draft out, and what is behind it."""
    width, head = max(s.drafts for s in segments), 0
    drafts = np.full((len(segments), width), -1, np.int32)
    drawn_rows = np.full((len(segments), width + 1), -1, np.int32)
    for i, s in enumerate(segments):
        drafts[i, : s.drafts] = s.drafted
        if s.draws:
            drawn_rows[i, : s.drafts + 1] = head + s.scored + np.arange(s.drafts + 1)
        head += len(s.heads)
    known = mx.array(np.array([s.known for s in segments], np.int32))
    rows = mx.array(drawn_rows)
    if picked is None:
        return Verdict(
            known, mx.full(rows.shape, -1, mx.int32), mx.zeros(known.shape, mx.int32), mx.ones(known.shape, mx.bool_)
        )
    drawn = mx.where(rows >= 0, picked.ids[mx.maximum(rows, 0)], -1)
    finite = picked.finite[mx.maximum(rows, 0)] | (rows < 0)
    right = (drawn[:, :-1] == mx.array(drafts)) & (mx.array(drafts) >= 0) & finite[:, :-1]
    accepted = mx.sum(mx.cumprod(right.astype(mx.int32), axis=1), axis=1) if width else mx.zeros(known.shape, mx.int32)
    at = accepted[:, None]
    good = mx.take_along_axis(finite, at, 1)[:, 0]
    column = mx.arange(width + 1, dtype=mx.int32)[None]
    return Verdict(
        kept=known + accepted.astype(mx.int32) - (~good).astype(mx.int32),
        tokens=mx.where(column <= at, drawn, -1),
        last=mx.maximum(mx.take_along_axis(drawn, at, 1)[:, 0], 0),
        finite=good,
    )
