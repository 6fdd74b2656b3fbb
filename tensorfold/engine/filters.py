"""Changes to logits and the filters of sampling, row by row. Knows no noise, no slots and no text.

A row's result depends on that row alone: what a row does not ask for leaves its bits as they are.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.engine.elementary import SMALLEST_NORMAL, exp, log, running_sum
from tensorfold.engine.rows import RowParams


def adjusted(logits: mx.array, rows: RowParams) -> mx.array:
    """logits float32 [R, V] as they are drawn from, x in this order, each step rounded to float32:

    1. logits + 0, so that -0 becomes +0; 2. x + bias; 3. repetition penalty, for tokens seen in prompt or reply, once
    each: x / penalty above 0, else x * penalty; 4. x - frequency * count, then x - presence where count > 0, with
    count the times that the token stands in the reply (OpenAI's definition); 5. tokens that end the reply are -inf
    while min_tokens forbids them.
    """
    x = logits + 0.0
    if rows.bias_ids is not None and rows.bias_values is not None:
        plane = mx.zeros((x.shape[0], x.shape[1] + 1), dtype=mx.float32)
        x = x + mx.put_along_axis(plane, _columns(rows.bias_ids, x), rows.bias_values, axis=-1)[:, :-1]
    if rows.penalty is not None and rows.seen is not None:
        plane = mx.zeros((x.shape[0], x.shape[1] + 1), dtype=mx.bool_)
        seen = mx.put_along_axis(plane, _columns(rows.seen, x), mx.array(True), axis=-1)[:, :-1]
        penalty = rows.penalty[:, None]
        x = mx.where(seen & (penalty != 1.0), mx.where(x > 0, x / penalty, x * penalty), x)
    if rows.made is not None and rows.frequency is not None and rows.presence is not None:
        count = mx.zeros((x.shape[0], x.shape[1] + 1), dtype=mx.float32)  # of ones, exact in any order
        count = count.at[mx.arange(x.shape[0])[:, None], _columns(rows.made, x)].add(1.0)[:, :-1]
        x = x - rows.frequency[:, None] * count
        x = x - mx.where(count > 0, rows.presence[:, None], 0.0)
    if rows.ends is not None and rows.until is not None and rows.position is not None:
        plane = mx.zeros((x.shape[0], x.shape[1] + 1), dtype=mx.bool_)
        end = mx.put_along_axis(plane, _columns(rows.ends, x), mx.array(True), axis=-1)[:, :-1]
        x = mx.where(end & (rows.position < rows.until)[:, None], -mx.inf, x)
    return x


def _columns(ids: mx.array, x: mx.array) -> mx.array:
    """Where in the vocabulary ids stand; padding goes to one column beyond the vocabulary, which is cut off again."""
    return mx.where(ids < 0, x.shape[1], ids)


def kept(x: mx.array, rows: RowParams) -> mx.array | None:
    """Tokens that survive top_p, min_p and top_k, bool [R, V], or None when no row filters; x float32 [R, V].

    All three look at the probabilities p at temperature 1. top_p keeps a token while the mass of strictly likelier
    tokens is below top_p of the whole; min_p keeps p >= min_p * largest p; top_k keeps k tokens, ties to the lower id.
    Each keeps the likeliest tokens down to some rank, so applying them one after the other is keeping what all keep.
    """
    if rows.top_p is None and rows.min_p is None and rows.top_k is None:
        return None
    largest = mx.max(x, axis=-1, keepdims=True)
    keep = mx.ones(x.shape, dtype=mx.bool_)
    falling = None
    if rows.top_p is not None or rows.top_k is not None:
        falling = -mx.sort(-x, axis=-1)
    if rows.top_p is not None and falling is not None:
        keep = keep & _top_p(x, falling, largest, rows.top_p[:, None])
    if rows.min_p is not None:
        asked = rows.min_p[:, None]
        floor = largest + log(mx.maximum(asked, SMALLEST_NORMAL))
        keep = keep & ((x >= floor) | (asked <= 0))
    if rows.top_k is not None and falling is not None:
        keep = keep & _top_k(x, falling, rows.top_k[:, None])
    return keep


def _top_p(x: mx.array, falling: mx.array, largest: mx.array, top_p: mx.array) -> mx.array:
    mass = running_sum(exp(falling - largest))
    before = mx.pad(mass[:, :-1], [(0, 0), (1, 0)])
    count = mx.sum((before < top_p * mass[:, -1:]).astype(mx.int32), axis=-1, keepdims=True)
    threshold = mx.take_along_axis(falling, mx.maximum(count - 1, 0), axis=-1)
    return (x >= threshold) | (top_p <= 0) | (top_p >= 1)


def _top_k(x: mx.array, falling: mx.array, top_k: mx.array) -> mx.array:
    vocab = x.shape[-1]
    k = mx.where((top_k <= 0) | (top_k > vocab), vocab, top_k)
    threshold = mx.take_along_axis(falling, k - 1, axis=-1)
    above, equal = x > threshold, x == threshold
    room = k - mx.sum(above.astype(mx.int32), axis=-1, keepdims=True)
    return above | (equal & (mx.cumsum(equal.astype(mx.int32), axis=-1) <= room))
