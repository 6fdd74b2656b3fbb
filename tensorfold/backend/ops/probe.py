"""Finds out at load whether this device's operations give a row the same bits alone and among others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Columns
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops.backend import OpsBackend
from tensorfold.backend.ops.linear import Fp4Experts, Fp8Weight
from tensorfold.config import ModelConfig

_ROWS = 64
_COUNTS = (1, 2, 3, 5, 6, 8, 16, 33)


def rows_are_independent(config: ModelConfig) -> bool:
    """Tries the products and sums at this config's widths, 1 to 64 rows, with the first row in different places."""
    backend = OpsBackend(config)
    for run, x in _trials(backend, config):
        whole = np.array(run(x))
        for n in _COUNTS:
            if not (_equal(run(x[:n]), whole[:n]) and _equal(run(x[_ROWS - n :]), whole[_ROWS - n :])):
                return False
    return True


def _equal(value: mx.array, expected: np.ndarray) -> bool:
    return np.array_equal(np.array(value), expected)


def _trials(b: OpsBackend, c: ModelConfig) -> Iterator[tuple[Callable[[mx.array], mx.array], mx.array]]:
    """Functions of rows, and rows to give them; results are float32 so that numpy can hold them."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32))

    def half(*shape: int) -> mx.array:
        return normal(*shape).astype(mx.bfloat16)

    def codes(*shape: int) -> mx.array:
        return mx.array(rng.integers(0, 0x7F, shape, dtype=np.uint8))

    widths = {c.hidden_size, c.q_lora_rank, c.o_groups * c.o_lora_rank, c.moe_intermediate_size}
    for k in sorted(widths):
        fp8 = Fp8Weight(codes(1, 2, 32, k), mx.full((1, 2, 1, k // 32, 1), 2.0**-6, mx.bfloat16), 64)
        matrix, wide = half(64, k), normal(24, k)
        yield partial(lambda w, x: _wide(b.matvec_fp8(x, w)), fp8), half(_ROWS, k)
        yield partial(lambda w, x: _wide(b.matvec_bf16(x, w)), matrix), half(_ROWS, k)
        yield partial(lambda w, x: b.matvec_f32(x, w), matrix), half(_ROWS, k)
        yield partial(lambda w, x: b.matvec_f32(x, w), wide), normal(_ROWS, k)
        yield partial(lambda w, x: _wide(b.rms_norm(x, w)), half(k)), half(_ROWS, k)
    flat, n = c.hc_mult * c.hidden_size, (2 + c.hc_mult) * c.hc_mult
    fn, base, scale = normal(n, flat) * flat**-0.5, normal(n), normal(3)
    yield (
        lambda x: mx.concatenate([a.reshape(x.shape[0], -1) for a in b.hc_mix(x, fn, base, scale)], 1),
        half(_ROWS, c.hc_mult, c.hidden_size),
    )
    k, i = c.hidden_size, c.moe_intermediate_size

    def matrix4(rows: int, columns: int) -> tuple[mx.array, mx.array]:
        return codes(2, rows, columns // 2).view(mx.uint32), mx.full((2, rows, columns // 32), 120, mx.uint8)

    experts = Fp4Experts(matrix4(2 * i, k), matrix4(k, i))
    ids = mx.array(np.tile(np.array([[0, 1]], np.int32), (_ROWS, 1)))
    weights = mx.ones((_ROWS, 2))
    yield lambda x: _wide(b.experts(x, ids[: x.shape[0]], weights[: x.shape[0]], experts)), half(_ROWS, k)
    rows = b.pack(half(96, c.head_dim), RowKind.WINDOW)
    places = mx.array(np.tile(np.arange(96, dtype=np.int32), (_ROWS, 1)))

    def attend(x: mx.array) -> mx.array:
        return _wide(b.attend(x, [Columns(rows, rows[:0], places[: x.shape[0]], RowKind.WINDOW)], sink))

    sink = normal(c.num_attention_heads)
    yield attend, half(_ROWS, c.num_attention_heads, c.head_dim)
    yield from _glue_trials(b, c, normal, half)


def _glue_trials(
    b: OpsBackend, c: ModelConfig, normal: Callable[..., mx.array], half: Callable[..., mx.array]
) -> Iterator[tuple[Callable[[mx.array], mx.array], mx.array]]:
    """The operations between the matrices; what a row meets beside `x` is alike in all rows."""

    def alike(make: Callable[..., mx.array], *shape: int) -> Callable[[mx.array], mx.array]:
        rows = mx.repeat(make(1, *shape), _ROWS, 0)
        return lambda x: rows[: x.shape[0]]

    d, n, i, k = c.hidden_size, c.hc_mult, c.moe_intermediate_size, c.num_experts_per_tok
    weight, vector, pre, post, comb = half(d), alike(half, d), alike(normal, n), alike(normal, n), alike(normal, n, n)
    yield lambda x: _wide(b.hc_collapse(x, pre(x))), half(_ROWS, n, d)
    yield lambda x: _wide(b.hc_collapse_norm(x, pre(x), weight)), half(_ROWS, n, d)
    yield lambda x: _wide(b.hc_post(vector(x), x, post(x), comb(x))), half(_ROWS, n, d)
    yield lambda x: _wide(b.hc_mean(x)), half(_ROWS, n, d)
    if c.engram_layer_ids:
        kv, q_weight, k_weight = alike(half, (n + 1) * d), half(n, d), half(n, d)
        yield lambda x: _wide(b.engram_inject(x, kv(x), q_weight, k_weight)), half(_ROWS, n, d)
        scales = alike(lambda *shape: mx.full(shape, 120, mx.uint8), 3, c.engram_head_dim // 32)
        yield (
            lambda x: _wide(b.engram_rows(b.pack(x, RowKind.WINDOW)[..., : c.engram_head_dim], scales(x))),
            half(_ROWS, 3, c.engram_head_dim),
        )
    table = alike(normal, c.qk_rope_head_dim // 2, 2)
    yield lambda x: _wide(b.rope(x, table(x))), half(_ROWS, c.num_attention_heads, c.head_dim)
    yield lambda x: _wide(b.act_quant_fp8(x)), half(_ROWS, d)
    for kind in RowKind:
        yield partial(lambda kind, x: b.pack(x, kind), kind), half(_ROWS, c.head_dim)
    gates = alike(normal, 2, c.head_dim)
    yield lambda x: _wide(b.compress_pair(x, gates(x))), normal(_ROWS, 2, c.head_dim)
    heads, keys = alike(half, c.index_n_heads), b.pack(half(192, c.index_head_dim), RowKind.KEY)
    queries = half(_ROWS, c.index_n_heads, c.index_head_dim)
    yield lambda x: b.score_rows(b.pack(x, RowKind.KEY), heads(x), keys), queries
    bias = normal(c.n_routed_experts)
    yield lambda x: mx.concatenate([_wide(a) for a in b.route(x, bias, k)], 1), normal(_ROWS, c.n_routed_experts)
    up = alike(half, i)
    yield lambda x: _wide(b.swiglu(x, up(x))), half(_ROWS, i)
    yield lambda x: _wide(b.moe_join(x, vector(x))), half(_ROWS, k, d)


def _wide(x: mx.array) -> mx.array:
    return x.astype(mx.float32)
