"""Plausible mistakes must not fit inside the bounds: each one, put into the ops backend, fails a check of bounds.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import moe, quant
from tests.network import bounds
from tests.network.sublayers import Sublayers
from tests.support.published import PublishedScores


class HeadNorm(PublishedScores):
    """V4's norm of every query head."""

    def attend(self, q: mx.array, columns: Any, sink: mx.array) -> mx.array:
        f = q.astype(mx.float32)
        f = f / mx.sqrt(mx.mean(f * f, -1, keepdims=True) + 1e-20)
        return super().attend(f.astype(mx.bfloat16), columns, sink)


class NoActivationQuantiser(PublishedScores):
    def act_quant_fp8(self, x: mx.array) -> mx.array:
        return x


class NoExpertQuantiser(PublishedScores):
    """The routed hidden row goes to w2 unquantised."""

    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Any) -> mx.array:
        m = self._matrices
        gate, up = mx.split(m.gathered_fp4(x[:, None], ids, experts.w13), 2, -1)
        return m.gathered_fp4(moe.swiglu(gate, up, self.config.swiglu_limit, weights[..., None]), ids, experts.w2)


class NoClamp(PublishedScores):
    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Any) -> mx.array:
        m = self._matrices
        gate, up = mx.split(m.gathered_fp4(x[:, None], ids, experts.w13), 2, -1)
        return m.gathered_fp4(quant.round_trip_fp8(moe.swiglu(gate, up, 1e30, weights[..., None])), ids, experts.w2)


class TiesToTheHigherRow(PublishedScores):
    """Rows mirrored, selected, mirrored back: the same scores, the other end of a tie."""

    def select(self, scores: mx.array, visible: mx.array, candidates: Any, topk: int) -> mx.array:
        count = scores.shape[1]
        if count <= topk:
            return super().select(scores, visible, candidates, topk)
        seen = mx.arange(count)[None] < visible[:, None]
        seen = seen if candidates is None else seen & candidates
        flipped = mx.where(seen, scores, -mx.inf)[:, ::-1]
        rows = count - 1 - super().select(flipped, mx.full(visible.shape, count), None, topk)
        rows = mx.sort(mx.where(rows < visible[:, None], rows, count), -1)
        return mx.where(rows < count, rows, -1)


class WeightAfterExpert(PublishedScores):
    """The routing weight enters behind w2."""

    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Any) -> mx.array:
        y = super().experts(x, ids, mx.ones_like(weights), experts)
        return (y.astype(mx.float32) * weights[..., None]).astype(mx.bfloat16)


class RoundedDownScales(PublishedScores):
    """Window scales rounded down to a power of two, so that large elements saturate."""

    def pack(self, x: mx.array, kind: RowKind) -> mx.array:
        if kind is not RowKind.WINDOW:
            return super().pack(x, kind)
        scales = super().pack(x, kind)[:, x.shape[-1] :] - 1
        wide = x.astype(mx.float32).reshape(len(x), -1, 32) / quant.ue8m0()[scales.astype(mx.int32)][..., None]
        return mx.concatenate([mx.to_fp8(mx.clip(wide, -448, 448)).reshape(x.shape), scales], -1)


class PowerOfTwoScales(PublishedScores):
    """Compressed rows with power-of-two scales, as index keys have."""

    def pack(self, x: mx.array, kind: RowKind) -> mx.array:
        if kind is not RowKind.COMPRESSED:
            return super().pack(x, kind)
        codes, scales = quant.quant_fp4_e8m0(mx.repeat(x.reshape(len(x), -1, 16), 2, -1).reshape(len(x), -1))
        codes = codes.reshape(len(x), -1, 16)  # every element stands twice: its pair's low nibble is the code
        low = (codes & 15).reshape(len(x), -1, 2)
        return mx.concatenate([low[..., 0] | (low[..., 1] << 4), mx.to_fp8(quant.ue8m0()[scales.astype(mx.int32)])], -1)


class UnroundedPool(PublishedScores):
    """The pooled pair goes into its norm in float32."""

    def compress_pair(self, values: mx.array, gates: mx.array) -> mx.array:
        return mx.sum(values * mx.softmax(gates, 1), 1)


class PlainSoftmax(PublishedScores):
    """One softmax over all columns, probabilities unrounded."""

    def attend(self, q: mx.array, columns: Any, sink: mx.array) -> mx.array:
        places = mx.concatenate([c.places for c in columns], 1)[:, None]
        keys = mx.concatenate([self.unpack(self.gather(c), c.kind) for c in columns], 1)
        s = mx.where(places >= 0, q.astype(mx.float32) @ keys.swapaxes(1, 2) * q.shape[-1] ** -0.5, -mx.inf)
        s = mx.concatenate([s, mx.broadcast_to(sink[None, :, None], (*q.shape[:2], 1))], -1)
        return (mx.softmax(s, -1)[..., :-1] @ keys).astype(mx.bfloat16)


class NoSink(PublishedScores):
    def attend(self, q: mx.array, columns: Any, sink: mx.array) -> mx.array:
        return super().attend(q, columns, mx.full(sink.shape, -1e30))


class NoInverseRope(PublishedScores):
    def rope(self, x: mx.array, table: mx.array, inverse: bool = False) -> mx.array:
        return x if inverse else super().rope(x, table)


class NoCandidates(PublishedScores):
    def candidate_blocks(self, scores: mx.array, visible: mx.array) -> mx.array:
        return mx.ones(scores.shape, mx.bool_)


class TransposedMix(PublishedScores):
    def hc_post(self, y: mx.array, x: mx.array, post: mx.array, comb: mx.array) -> mx.array:
        return super().hc_post(y, x, post, comb.swapaxes(-1, -2))


class OneStream(PublishedScores):
    """The collapse takes stream 0 alone, as the first layer may."""

    def hc_collapse_norm(self, x: mx.array, pre: mx.array, weight: mx.array) -> mx.array:
        return self.rms_norm(x[:, 0], weight)


Check = Callable[..., Any]
MISTAKES: list[tuple[type[PublishedScores], Check, str, int]] = [
    (HeadNorm, bounds.check_attend, "tiny_calm", 3),
    (HeadNorm, bounds.check_attention, "tiny_calm", 3),
    (HeadNorm, bounds.check_attention, "heads", 1),
    (NoActivationQuantiser, bounds.check_queries, "tiny_calm", 0),
    (NoActivationQuantiser, bounds.check_output, "trained", 2),
    (NoActivationQuantiser, bounds.check_attention, "heads", 1),
    (NoActivationQuantiser, bounds.check_moe, "tiny_calm", 5),
    (NoExpertQuantiser, bounds.check_moe, "trained", 6),
    (WeightAfterExpert, bounds.check_moe, "trained", 6),
    (NoClamp, bounds.check_clamped_experts, "trained", 6),
    (RoundedDownScales, bounds.check_window, "tiny_calm", 0),
    (RoundedDownScales, bounds.check_attention, "heads", 1),
    (PowerOfTwoScales, bounds.check_stored_rows, "tiny_calm", 4),
    (PowerOfTwoScales, bounds.check_attention, "heads", 6),
    (UnroundedPool, bounds.check_latents, "tiny_calm", 2),
    (UnroundedPool, bounds.check_latents, "heads", 2),
    (PlainSoftmax, bounds.check_attend, "heads", 6),
    (PlainSoftmax, bounds.check_attention, "tiny_calm", 7),
    (NoSink, bounds.check_attention, "trained", 1),
    (NoInverseRope, bounds.check_output, "trained", 1),
    (NoCandidates, bounds.check_selection, "trained", 8),
    (NoCandidates, bounds.check_selection, "heads", 8),
    (TiesToTheHigherRow, bounds.check_selection, "heads", 6),
    (TransposedMix, bounds.check_glue, "tiny_calm", 2),
    (OneStream, bounds.check_glue, "trained", 3),
]


@pytest.mark.parametrize("mistake,check,name,layer", MISTAKES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_mistake_fails(mistake: type[PublishedScores], check: Check, name: str, layer: int) -> None:
    with pytest.raises(AssertionError):
        check(Sublayers(name, mistake), layer)


@pytest.mark.parametrize("layer", [7, 8, 9])
def test_tap_of_the_output_fails(layer: int) -> None:
    """A tap taken behind its layer is out of bounds."""
    s = Sublayers("tiny_calm")
    got = s.backend.hc_mean(s.inputs(layer, "x_out"))
    with pytest.raises(AssertionError):
        bounds.one_rounding((got, s.tap(layer)[1]))
