"""The pick: one token for every row of logits, in one stated order of arithmetic. Knows no slots, text or drafts.

Order: the changes that `filters.adjusted` states, then the largest logit (greedy) or, among the tokens the filters
keep, the largest logit - T * log E with E the exponential noise of (seed, position, token); ties go to the lower id. A
row's bits depend on its own logits and its own choices alone. Nothing here reads a device value or runs inside
mx.compile.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from tensorfold.backend.base import Draw
from tensorfold.engine.elementary import exp, log, tree_sum
from tensorfold.engine.filters import adjusted, kept
from tensorfold.engine.noise import log_noise
from tensorfold.engine.rows import RowParams


@dataclass(frozen=True)
class Picked:
    """What a round's rows drew.

    ids: int32 [R]. finite: bool [R], False where the row's logits held NaN or an infinity (bias aside) or no token was
    left: that id means nothing. logprob: float32 [R] of the picked token, top_ids: int32 [R, K] and top_logprobs:
    float32 [R, K] of the likeliest, falling, ties to the lower id, -1 and -inf where only banned tokens are left;
    these three are None unless a row asks for logprobs, and K is the most that any row asks.
    """

    ids: mx.array
    finite: mx.array
    logprob: mx.array | None = None
    top_ids: mx.array | None = None
    top_logprobs: mx.array | None = None


def pick(logits: mx.array, rows: RowParams, noise: mx.array | None = None, draw: Draw | None = None) -> Picked:
    """Pick one token a row from logits float32 [R, V]; noise: log_noise of the rows float32 [R, V] if already at hand.

    draw: the same pick in fewer launches, used where rows ask for nothing but a temperature.

    Raises ValueError for logits of another shape or type.
    """
    if logits.ndim != 2 or logits.dtype != mx.float32:
        raise ValueError(f"logits must be float32 [rows, vocabulary], not {logits.dtype} {logits.shape}")
    if draw is not None and rows.plain:
        return Picked(*draw(logits, *rows.warmth(logits.shape[0])))
    x = adjusted(logits, rows)
    finite = mx.all(mx.abs(logits) < mx.inf, axis=-1)
    if rows.changes:
        finite = finite & mx.all(x < mx.inf, axis=-1) & mx.any(x > -mx.inf, axis=-1)
    score = x
    if rows.temperature is not None and rows.seed is not None and rows.position is not None:
        if noise is None:
            noise = log_noise(rows.seed, rows.position, logits.shape[1])
        # at temperature 0 the finite noise drops out, and every filter keeps the largest logit of the lowest id
        score = x - rows.temperature[:, None] * noise
        keep = kept(x, rows)
        if keep is not None:
            score = mx.where(keep, score, -mx.inf)
    ids = mx.argmax(score, axis=-1).astype(mx.int32)
    if rows.given is not None:
        ids = mx.where(rows.given >= 0, rows.given, ids)
    if rows.logprobs is None:
        return Picked(ids, finite)
    return Picked(ids, finite, *_logprobs(x, ids, min(rows.logprobs, logits.shape[1])))


def _logprobs(x: mx.array, ids: mx.array, count: int) -> tuple[mx.array, mx.array, mx.array]:
    """Log-probabilities at temperature 1 of adjusted logits, before filters: (x - largest) - log(sum of exp)."""
    shifted = x - mx.max(x, axis=-1, keepdims=True)
    every = shifted - log(tree_sum(exp(shifted)))
    columns, left = mx.arange(x.shape[1], dtype=mx.int32)[None], x
    top_ids = [mx.zeros((x.shape[0], 0), dtype=mx.int32)]
    top = [mx.zeros((x.shape[0], 0), dtype=mx.float32)]
    for _ in range(count):
        best = mx.argmax(left, axis=-1, keepdims=True).astype(mx.int32)
        banned = mx.take_along_axis(left, best, axis=-1) == -mx.inf
        top_ids.append(mx.where(banned, -1, best))
        top.append(mx.where(banned, -mx.inf, mx.take_along_axis(every, best, axis=-1)))
        left = mx.where(columns == best, -mx.inf, left)
    picked = mx.take_along_axis(every, ids[:, None], axis=-1)[:, 0]
    return picked, mx.concatenate(top_ids, axis=-1), mx.concatenate(top, axis=-1)
