"""Hyper-connections around a sublayer: mixes, collapse, post (docs/model.md#hyper-connections)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx

from tensorfold.backend.base import Backend, Entered, Output, Quantised, WeightSource

# a sublayer of its input, plain and quantised, gives its output and whatever its caller collects from it
Sublayer = Callable[[mx.array, Quantised], tuple[Output, Any]]


class Streams(NamedTuple):
    """Streams bf16 [R, n, D], the last sublayer's pre float32 [R, n], and what was computed ahead for the next mix."""

    x: mx.array
    pre: mx.array
    ahead: mx.array | None = None

    def first(self, rows: int) -> Streams:
        """Those of the first rows."""
        return Streams(self.x[:rows], self.pre[:rows], None if self.ahead is None else self.ahead[:rows])


class HyperConnection:
    """One sublayer's mixing weights; `kind` is attn or ffn."""

    def __init__(self, source: WeightSource, prefix: str, kind: str, backend: Backend):
        self.backend = backend
        self.fn = source.array(f"{prefix}.hc_{kind}_fn")
        self.base, self.scale = source.array(f"{prefix}.hc_{kind}_base"), source.array(f"{prefix}.hc_{kind}_scale")
        self.norm = source.array(f"{prefix}.{kind}_norm.weight")

    def enter(self, s: Streams) -> Entered:
        """What the sublayer takes in, and the mixes."""
        return self.backend.hc_enter(s.x, s.pre, self.fn, self.base, self.scale, self.norm, s.ahead)

    def __call__(
        self, s: Streams, sublayer: Sublayer, following: HyperConnection | None, rows: int | None = None
    ) -> tuple[Streams, Any]:
        """Streams -> streams and what the sublayer left beside; `following` mixes them next, untouched. rows: of how
        many, the first ones, the sublayer gives an output."""
        e = self.enter(s)
        y, beside = sublayer(e.hidden, e.quantised)
        post, comb, fn = e.post[:rows], e.comb[:rows], None if following is None else following.fn
        x, ahead = self.backend.hc_leave(y, s.x[:rows], post, comb, fn)
        return Streams(x, e.pre[:rows], ahead), beside


def first_streams(embedded: mx.array, count: int) -> Streams:
    """bf16 [R, D] -> equal streams bf16 [R, count, D] and the first pre, all weight on stream 0."""
    rows = embedded.shape[0]
    x = mx.repeat(embedded[:, None], count, 1)
    return Streams(x, mx.broadcast_to(mx.array([1.0] + [0.0] * (count - 1)), (rows, count)))
