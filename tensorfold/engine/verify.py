"""What a round keeps, decided on the device: each slot's longest prefix of drafts that equal what the target drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tensorfold.engine.pick import Picked


@dataclass(frozen=True)
class Window:
    """One slot's rows of a round: known ids, then drafts; `head` is its first row among the sampled ones,
    None mid-prompt."""

    known: int
    drafts: Sequence[int]
    head: int | None


@dataclass(frozen=True)
class Verdict:
    """Per segment: rows kept int32 [S], drawn tokens int32 [S, K+1] with -1 beyond the last, the last one int32 [S],
    its finiteness."""

    kept: mx.array
    tokens: mx.array
    last: mx.array
    finite: mx.array


def judge(picked: Picked | None, windows: Sequence[Window], eos: int) -> Verdict:
    """Compares drafts with draws; a draft after an eos is never kept, nor is a row whose logits are not finite."""
    width = max(len(w.drafts) for w in windows)
    drafts = np.full((len(windows), width), -1, np.int32)
    place = np.full((len(windows), width + 1), -1, np.int32)
    for i, w in enumerate(windows):
        drafts[i, : len(w.drafts)] = w.drafts
        if w.head is not None:
            place[i, : len(w.drafts) + 1] = w.head + np.arange(len(w.drafts) + 1)
    known = mx.array(np.array([w.known for w in windows], np.int32))
    rows = mx.array(place)
    if picked is None:
        return Verdict(
            known, mx.full(rows.shape, -1, mx.int32), mx.zeros(known.shape, mx.int32), mx.ones(known.shape, mx.bool_)
        )
    drawn = mx.where(rows >= 0, picked.ids[mx.maximum(rows, 0)], -1)
    finite = picked.finite[mx.maximum(rows, 0)] | (rows < 0)
    right = (drawn[:, :-1] == mx.array(drafts)) & (mx.array(drafts) >= 0) & finite[:, :-1] & (drawn[:, :-1] != eos)
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
