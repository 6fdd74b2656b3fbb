"""Attention of the ops backend: packed rows gathered by place, scored, selected, attended; knows places, not slots.

Columns go in blocks of 64 with a running maximum (docs/model.md#attention, docs/model.md#decisions). An empty column is
masked and changes no bit, so how many of them pad the list does not matter. A P below 2^-64 counts as 0, as in the
kernels; the denominator sums P as it is. (The kernels take such scores for 0, too, which changes no P.)
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.base import Columns
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import quant

BLOCK = 64
LEAST_P = 2.0**-64
_LOWEST = -(2**63)


def gather(rows: Columns) -> mx.array:
    """Packed rows by place, uint8 [..., bytes]; an empty place gives some row."""
    size = rows.cache.shape[0]
    old = rows.cache[mx.clip(rows.places, 0, size - 1)]
    if not rows.new.shape[0]:
        return old
    fresh = rows.new[mx.clip(rows.places - size, 0, rows.new.shape[0] - 1)]
    return mx.where((rows.places >= size)[..., None], fresh, old)


def compress_pair(values: mx.array, gates: mx.array) -> mx.array:
    """float32 [M, 2, hd] each -> bf16 [M, hd]: per-dim softmax over the pair, rounded before the norm."""
    e = mx.exp(gates - mx.max(gates, 1, keepdims=True))
    return mx.sum(values * (e / mx.sum(e, 1, keepdims=True)), 1).astype(mx.bfloat16)


def index_dots(queries: mx.array, keys: mx.array) -> mx.array:
    """Packed queries [R, H, bytes] and keys [C, bytes] -> float32 [R, H, C].

    The dot of a 32-block is exact in float32 (products are multiples of 1/4, sums below 2^11),
    so only the sum over blocks has an order.
    """
    q, qs = quant.split(queries, RowKind.KEY)
    k, ks = quant.split(keys, RowKind.KEY)
    rows, heads, blocks, _ = q.shape
    q, qs = (a.reshape(rows * heads, blocks, -1).swapaxes(0, 1) for a in (q, qs))
    k, ks = k.transpose(1, 2, 0), ks.transpose(1, 2, 0)
    parts = (q @ k) * (qs * ks)
    total = parts[0]
    for b in range(1, blocks):
        total = total + parts[b]
    return total.reshape(rows, heads, -1)


def index_scores(queries: mx.array, weights: mx.array, keys: mx.array) -> mx.array:
    """relu of the dots, weighted and summed over heads by halves: float32 [R, C]."""
    s = mx.maximum(index_dots(queries, keys), 0) * weights.astype(mx.float32)[:, :, None]
    while s.shape[1] > 1:
        half = (s.shape[1] + 1) // 2
        low, high = s[:, :half], s[:, half:]
        even = half == high.shape[1]
        s = low + high if even else mx.concatenate([low[:, :-1] + high, low[:, -1:]], 1)
    return s.squeeze(1)


def candidate_mask(scores: mx.array, visible: mx.array, block: int, topk: int) -> mx.array:
    """Columns in the best `topk` blocks of `block` rows, the newest visible row's block among them: bool [R, C]."""
    rows, c = scores.shape
    count = -(-c // block)
    seen = mx.where(mx.arange(c)[None] < visible[:, None], scores, -mx.inf)
    seen = mx.pad(seen, [(0, 0), (0, count * block - c)], constant_values=-mx.inf)
    best = mx.max(seen.reshape(rows, count, block), -1)
    best = mx.where(mx.arange(count)[None] == (visible[:, None] - 1) // block, mx.inf, best)
    if count > topk:
        order = mx.argsort(-rank(best, mx.full((rows,), count)), -1)[:, :topk]
        kept = mx.put_along_axis(mx.zeros((rows, count), mx.bool_), order, mx.array(True), -1)
    else:
        kept = mx.ones((rows, count), mx.bool_)
    return mx.repeat(kept & (best > -mx.inf), block, -1)[:, :c]


def rank(scores: mx.array, visible: mx.array) -> mx.array:
    """int64 keys: higher score first, then lower row; NaN below everything, invisible rows lowest."""
    bits = (scores + 0.0).view(mx.int32)
    ordered = mx.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    ordered = mx.where(mx.isnan(scores), -(2**31), ordered).astype(mx.int64)
    column = mx.arange(scores.shape[1], dtype=mx.int64)[None]
    return mx.where(column < visible[:, None], ordered * 2**32 + (2**31 - 1 - column), _LOWEST)


def select(scores: mx.array, visible: mx.array, candidates: mx.array | None, topk: int) -> mx.array:
    """Rows of the best `topk` visible scores, ascending, -1 at the end: int32 [R, min(topk, C)]."""
    c = scores.shape[1]
    column = mx.arange(c, dtype=mx.int32)[None]
    if c <= topk:
        return mx.where(column < visible[:, None], column, -1)
    if candidates is not None:
        scores = mx.where(candidates, scores, -mx.inf)
    best = mx.sort(rank(scores, visible), -1)[:, c - topk :]
    rows = mx.where(best == _LOWEST, c, 2**31 - 1 - (best & 0xFFFFFFFF)).astype(mx.int32)
    rows = mx.sort(rows, -1)
    return mx.where(rows < c, rows, -1)


def attend_arrays(kinds: tuple[RowKind, ...], q: mx.array, sink: mx.array, *arrays: mx.array) -> mx.array:
    """`attend` with its runs of columns as plain arrays: cache, new rows and places of each kind in turn."""
    runs = [arrays[i : i + 3] for i in range(0, len(arrays), 3)]
    return attend(q, [Columns(cache, new, places, kind) for (cache, new, places), kind in zip(runs, kinds)], sink)


def attend(q: mx.array, columns: list[Columns], sink: mx.array) -> mx.array:
    """bf16 [R, H, hd], runs of columns in order, float32 [H] -> bf16 [R, H, hd]."""
    places = mx.concatenate([c.places for c in columns], 1)
    parts = [quant.unpack(gather(c), c.kind) for c in columns]
    keys = parts[0] if len(parts) == 1 else mx.concatenate(parts, 1)
    spare = -places.shape[1] % BLOCK
    used = mx.pad(places, [(0, 0), (0, spare)], constant_values=-1) >= 0
    keys = mx.where(used[:, :, None], mx.pad(keys, [(0, 0), (0, spare), (0, 0)]), 0.0)
    rows, heads, dim = q.shape
    scale = float(dim) ** -0.5
    q = q.astype(mx.float32)
    top = mx.full((rows, heads, 1), -1e30)
    total, out = mx.zeros((rows, heads, 1)), mx.zeros((rows, heads, dim))
    for start in range(0, used.shape[1], BLOCK):
        k = keys[:, start : start + BLOCK]
        s = mx.where(used[:, None, start : start + BLOCK], (q @ k.swapaxes(-1, -2)) * scale, -mx.inf)
        peak = mx.maximum(top, mx.max(s, -1, keepdims=True))
        shrink, p = mx.exp(top - peak), mx.exp(s - peak)
        total = total * shrink + mx.sum(p, -1, keepdims=True)
        kept = mx.where(p < LEAST_P, 0.0, p).astype(mx.bfloat16).astype(mx.float32)
        out = out * shrink + kept @ k
        top = peak
    return (out / (total + mx.exp(sink[None, :, None] - top))).astype(mx.bfloat16)
