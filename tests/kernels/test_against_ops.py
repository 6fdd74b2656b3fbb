"""A kernel and its plain twin in the ops backend tell the same truth: both lie within the bound of float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import glue, moe, quant
from tensorfold.kernels.kernel import Array, as_mlx, as_numpy
from tensorfold.proof import families
from tensorfold.proof.contract.value import outside
from tensorfold.proof.families.engram_inject.cases import inverse_root
from tensorfold.proof.families.hc_post.cases import doubly_normal
from tensorfold.proof.numerics.exact import f32, store_bf16
from tensorfold.proof.numerics.inputs import Draw
from tests.support.hostkit import needs_clang


@dataclass(frozen=True)
class Pair:
    """A kernel, its inputs (numpy, bfloat16 as uint16), its options, and the twin on the same inputs as MLX arrays."""

    kernel: str
    arrays: tuple[Array, ...]
    twin: Callable[..., mx.array | Sequence[mx.array]]
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


EPS = np.array([1e-20], f32)
LIMIT = np.array([10.0], f32)


def glue_pairs(draw: Draw, rows: int = 5, d: int = 256) -> list[Pair]:
    """Norms, embedding and hyper-connections."""
    x, y, w = draw.bf16(rows, 4, d), draw.bf16(rows, d), draw.bf16(d)
    pre, post, comb = draw.uniform(0.0, 1.0, rows, 4), draw.uniform(0.0, 2.0, rows, 4), doubly_normal(draw, rows)
    return [
        Pair("embed", (draw.integers(0, 40, rows), draw.bf16(40, d)), lambda ids, table: table[ids]),
        Pair("rms_norm", (y, w, EPS), lambda x, w, eps: glue.rms_norm(x, w, 1e-20)),
        Pair("hc_mean", (x,), glue.hc_mean),
        Pair("hc_post", (y, x, post, comb), glue.hc_post),
        Pair("hc_post_dots", (y, x, post, comb, draw.normal(24, 4 * d, scale=0.02)), _with_products),
        Pair("hc_collapse_norm", (x, pre, w, EPS), lambda x, p, w, e: glue.hc_collapse_norm(x, p, w, 1e-20)),
        Pair(
            "hc_collapse_norm", (x, pre, w, EPS), lambda x, p, w, e: glue.hc_collapse(x, p), {"norm": False}, "collapse"
        ),
        Pair("hc_enter", (*_mix(draw, rows, d), x, pre, w), _enter, {"width": 4 * d}),
    ]


def _mix(draw: Draw, rows: int, d: int) -> tuple[Array, ...]:
    """Partial products of streams of about size one, base, scale and both eps."""
    part = draw.normal(rows, d // 128, 25)
    part[:, :, 24] = draw.uniform(400.0, 600.0, rows, d // 128)
    return part, draw.normal(24), draw.uniform(0.5, 2.0, 3), EPS, np.array([1e-6], f32)


def _enter(part: mx.array, base: mx.array, scale: mx.array, *more: mx.array) -> list[mx.array]:
    x, pre, w = more[2:]
    total = part.sum(1)
    rms = mx.rsqrt(total[:, 24:] / (x.shape[1] * x.shape[2]) + 1e-20)
    h = glue.hc_collapse_norm(x, pre, w, 1e-20)
    planes = quant.round_trip_fp8(h).astype(mx.float32).reshape(len(h), -1, 4, 4).swapaxes(1, 2)
    return [*glue.hc_split(total[:, :24], rms, base, scale, 4, 20, 1e-6), h, planes]


def _with_products(y: mx.array, x: mx.array, post: mx.array, comb: mx.array, fn: mx.array) -> list[mx.array]:
    out = glue.hc_post(y, x, post, comb)
    chunks = out.astype(mx.float32).reshape(len(out), -1, 1, 16, 32)
    products = chunks * fn.reshape(24, -1, 16, 32).swapaxes(0, 1)
    return [out, mx.concatenate([products, chunks * chunks], 2).sum(-2).sum(-1)]


def _leave(routed: mx.array, shared: mx.array, *streams: mx.array) -> mx.array:
    return glue.hc_post(moe.join(routed, shared), *streams)


def moe_pairs(draw: Draw, rows: int = 5, d: int = 256, inner: int = 96, k: int = 6) -> list[Pair]:
    """The expert feed-forward's elementwise parts."""
    gate, up = draw.bf16(rows, k, inner, scale=5.0), draw.bf16(rows, k, inner, scale=5.0)
    weights = draw.uniform(0.0, 1.5, rows, k)
    plain = partial(moe.swiglu, limit=10.0)
    streams = draw.bf16(rows, 4, d), draw.uniform(0.0, 2.0, rows, 4), doubly_normal(draw, rows)
    return [
        Pair("moe_join", (draw.bf16(rows, k, d), draw.bf16(rows, d)), moe.join),
        Pair("moe_leave", (draw.bf16(rows, k, d), draw.bf16(rows, d), *streams), _leave),
        Pair(
            "moe_leave_dots",
            (draw.bf16(rows, k, d), draw.bf16(rows, d), *streams, draw.normal(24, 4 * d, scale=0.02)),
            lambda routed, shared, *more: _with_products(moe.join(routed, shared), *more),
        ),
        Pair("swiglu_weighted", (gate, up, weights, LIMIT), lambda g, u, w, _: plain(g, u, weights=w[..., None])),
        Pair("swiglu_weighted", (gate, up, LIMIT, LIMIT), lambda g, u, *_: plain(g, u), {"weighted": False}, "shared"),
    ]


def routing_pairs(draw: Draw, rows: int = 6) -> list[Pair]:
    """Routing at every number of experts and picks in use."""
    scale = np.array([1.5], f32)

    def pair(experts: int, k: int, normalise: bool = True) -> Pair:
        def twin(logits: mx.array, bias: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
            return moe.route(logits, bias, k, 1.5, normalise)

        arrays = draw.normal(rows, experts, scale=3.0), draw.normal(experts, scale=0.1), scale
        return Pair("route", arrays, twin, {"k": k, "normalise": normalise}, f"{k} of {experts}, {normalise}")

    sizes = ((8, 2), (8, 3), (12, 3), (16, 4), (16, 6), (128, 3), (384, 6))
    return [*(pair(experts, k) for experts, k in sizes), pair(384, 6, False)]


def engram_pairs(draw: Draw, rows: int = 3) -> list[Pair]:
    """Engram rows and their addition to the streams."""

    def inject(x: mx.array, kv: mx.array, q: mx.array, k: mx.array, *_: mx.array) -> mx.array:
        return glue.engram_inject(x, kv, q, k, 1e-20)

    found = []
    for n, d in ((24, 256), (12, 32), (6, 32)):
        scales = draw.integers(100, 140, rows, n, d // 32).astype(np.uint8)
        found.append(Pair("engram_rows", (draw.bytes(rows, n, d), scales), quant.unpack_rows, name=f"{n}x{d}"))
    for d in (128, 256, 5120):
        arrays = draw.bf16(rows, 4, d), draw.bf16(rows, 5 * d), draw.bf16(4, d), draw.bf16(4, d), EPS, inverse_root(d)
        found.append(Pair("engram_inject", arrays, inject, name=f"D{d}"))
    return found


def quantiser_pairs(draw: Draw, rows: int = 16, k: int = 1536) -> list[Pair]:
    """Quantisers on blocks of magnitudes far apart and zeros of both signs: equal codes; an infinity: equal values."""
    powers = np.repeat(np.exp2(draw.integers(-40, 40, rows, k // 16)), 16, axis=1)
    x = store_bf16(draw.normal(rows, k) * powers)
    x[0, :32], x[1, 32:64], x[2, 5] = 0, 0x8000, 0x8000
    endless = x.copy()
    endless[3, 40], endless[4, 70] = 0x7F80, 0x7FC0
    found = []
    for name, kind in (
        ("act_quant_fp8", RowKind.WINDOW),
        ("act_quant_fp4_e8m0", RowKind.KEY),
        ("act_quant_fp4_e4m3", RowKind.COMPRESSED),
    ):
        found.append(Pair(name, (x,), partial(_apart, kind=kind)))
        found.append(Pair(f"{name}_pack", (x,), partial(quant.pack, kind=kind)))
        found.append(Pair(f"{name}_round", (endless,), partial(_round_trip, kind=kind)))
    return found


def _apart(x: mx.array, kind: RowKind) -> Sequence[mx.array]:
    rows, width = quant.pack(x, kind), kind.code_bytes(x.shape[-1])
    return rows[..., :width], rows[..., width:]


def _round_trip(x: mx.array, kind: RowKind) -> mx.array:
    if kind is RowKind.WINDOW:
        return quant.round_trip_fp8(x)
    return quant.unpack(quant.pack(x, kind), kind).astype(mx.bfloat16)


PAIRS = [
    *glue_pairs(Draw(11)),
    *moe_pairs(Draw(12)),
    *routing_pairs(Draw(13)),
    *engram_pairs(Draw(14)),
    *quantiser_pairs(Draw(15)),
]


@needs_clang
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p.kernel} {p.name}".strip())
def test_both_within_the_kernels_bound(pair: Pair) -> None:
    proof = families.get(pair.kernel)
    arrays = [as_mlx(a) for a in pair.arrays]
    truths = proof.reference(*pair.arrays, **pair.options)
    made = pair.twin(*arrays)
    twins = [made] if isinstance(made, mx.array) else list(made)
    for who, results in (("kernel", proof.kernel(*arrays, backend="host", **pair.options)), ("ops", twins)):
        found, worst = outside(proof.bound, [as_numpy(y) for y in results], truths, pair.arrays, pair.options)
        assert not found and worst <= 1, (who, found)
        assert [y.shape for y in results] == [np.shape(t) for t in truths], who


@needs_clang
@pytest.mark.parametrize("d, rows", [(128, 1), (128, 16), (256, 6), (5120, 1)])
def test_hc_mix_of_both_kernels(d: int, rows: int) -> None:
    draw = Draw(d + rows)
    x, fn = as_mlx(draw.bf16(rows, 4, d)), mx.array(draw.normal(24, 4 * d, scale=0.1 / d**0.5))
    base, scale = mx.array(draw.normal(24)), mx.array(draw.uniform(0.5, 2.0, 3))
    (part,) = families.get("hc_dots").kernel(x, fn, backend="host")
    given = part, base, scale, mx.array(EPS), mx.array([1e-6])
    made = families.get("hc_mix").kernel(*given, backend="host", width=4 * d, iterations=20)
    flat = x.reshape(rows, -1).astype(mx.float32)
    twins = glue.hc_split(flat @ fn.T, glue.inverse_rms(flat, 1e-20), base, scale, 4, 20, 1e-6)
    for ours, twin in zip(made, twins, strict=True):
        assert ours.shape == twin.shape and ours.dtype == twin.dtype == mx.float32
        # float32 sums of 4 d products in two orders, then sigmoids and normalisations of values below one
        assert np.abs(np.array(ours) - np.array(twin)).max() < 64 * 2.0**-24
