"""Matrices of the ops backend: packed weights, decoded as they are used; rows of a result never depend on each other.

An FP8 product is a bf16 matmul: codes decode exactly to bf16, and the 32x32 block's power of two goes into the
activations, which leaves every product and sum what it would be with the scale behind the block's sum. Where a scale
could take an activation out of bf16's range, it stays behind that sum, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import WeightSource
from tensorfold.backend.ops.quant import e4m3, ue8m0

# bytes of scales from 2^-95 to 1, which take no activation out of range: what act_quant leaves is 0 or
# at least 2^-31; those of zero and NaN
_FOLDED = np.isin(np.arange(256), [0, *range(32, 128), 255])


@dataclass(frozen=True)
class Fp8Weight:
    """codes uint8 [groups, N/32, 32, K]; scales bf16 [groups, N/32, 1, K/32, 1];
    N is padded to whole blocks, `rows` is without; `ends` are the row counts after which the next matrix begins;
    `folded`: whether its scales go into the activations."""

    codes: mx.array
    scales: mx.array
    rows: int
    ends: tuple[int, ...] = ()
    folded: bool = True

    def part(self, start: int, rows: int) -> Fp8Weight:
        """Rows start..start+rows of an ungrouped weight, whole blocks of 32."""
        blocks = slice(start // 32, -(-(start + rows) // 32))
        return Fp8Weight(self.codes[:, blocks], self.scales[:, blocks], rows, folded=self.folded)


@dataclass(frozen=True)
class Fp4Experts:
    """Nibbles as uint32 [E, N, K/8] and UE8M0 bytes [E, N, K/32]; w1 and w3 share an input and are stacked."""

    w13: tuple[mx.array, mx.array]
    w2: tuple[mx.array, mx.array]


def load_fp8(source: WeightSource, names: tuple[str, ...], groups: int = 1) -> Fp8Weight:
    """FP8 matrices that share an input, stacked by rows; with `groups`, equal row groups with an input each."""
    codes, scales, ends, rows = [], [], [], 0
    for name in names:
        c, s = source.raw(name + ".weight"), source.raw(name + ".scale")
        if len(names) > 1 and c.shape[0] % 32:
            raise ValueError(f"{name}.weight: {c.shape[0]} rows cannot be stacked, a multiple of 32 is needed")
        codes.append(c)
        scales.append(s)
        rows += c.shape[0]
        ends.append(rows)
    c, s = (np.concatenate(a) if len(a) > 1 else a[0] for a in (codes, scales))
    if c.shape[0] % 32:
        c = np.pad(c, ((0, -c.shape[0] % 32), (0, 0)))
    k = c.shape[1]
    values = ue8m0()[mx.array(s)].astype(mx.bfloat16)
    folded = bool(_FOLDED[s].all())
    blocks = mx.array(c).reshape(groups, -1, 32, k), values.reshape(groups, -1, 1, k // 32, 1)
    weight = Fp8Weight(*blocks, rows, tuple(ends[:-1]), folded)
    mx.eval(weight.codes, weight.scales)
    return weight


def load_experts(source: WeightSource, prefix: str, count: int) -> Fp4Experts:
    """The experts `prefix.0` .. `prefix.{count-1}`, stacked."""

    def stack(*matrices: str) -> tuple[mx.array, mx.array]:
        parts = []
        for leaf in ("weight", "scale"):
            rows, columns = source.raw(f"{prefix}.0.{matrices[0]}.{leaf}").shape
            out = np.empty((count, len(matrices), rows, columns), np.uint8)
            for e in range(count):
                for i, matrix in enumerate(matrices):
                    out[e, i] = source.raw(f"{prefix}.{e}.{matrix}.{leaf}")
            parts.append(out.reshape(count, -1, columns))
        codes, scales = parts
        silence_special(codes, scales)
        pair = mx.array(codes).view(mx.uint32), mx.array(scales)
        mx.eval(*pair)
        return pair

    return Fp4Experts(stack("w1", "w3"), stack("w2"))


def silence_special(codes: np.ndarray, scales: np.ndarray) -> None:
    """Sets the 16 code bytes of every block with a special scale to zero, in place: MLX reads scale 0 as 2^-127 and 255
    as infinity, and the rule is zero and NaN, which zero codes make of them."""
    special = (scales == 0) | (scales == 255)
    if special.any():
        codes.reshape(*scales.shape, 16)[special] = 0


def _decode_bits(codes: mx.array) -> mx.array:
    """e4m3 codes -> bf16 by integer arithmetic alone, which a compiled loop does many at a time."""
    v = codes.astype(mx.uint16)
    m = v & 0x7F
    small = mx.where(m >= 4, 15360 + ((m - 4) << 5), mx.where(m >= 2, 15232 + ((m - 2) << 6), m * 15104))
    bits = mx.where(m < 8, small, mx.where(m == 0x7F, 0x7FC0, (m << 4) + (120 << 7)))
    return (bits.astype(mx.uint16) | ((v & 0x80) << 8)).view(mx.bfloat16)


def _decode_each(codes: mx.array) -> mx.array:
    """e4m3 codes -> bf16 one by one, the fastest on a CPU."""
    return mx.from_fp8(codes, mx.bfloat16)


Decode = Callable[[mx.array], mx.array]


def _fp8(decode: Decode, x: mx.array, codes: mx.array, scales: mx.array) -> mx.array:
    groups, blocks, _, k = codes.shape
    rows = x.shape[0]
    scaled = x.reshape(rows, groups, 1, k // 32, 32).transpose(1, 2, 0, 3, 4) * scales
    out = scaled.reshape(groups, blocks, rows, k) @ decode(codes).swapaxes(-1, -2)
    return out.transpose(2, 0, 1, 3).reshape(rows, -1)


def _fp8_by_block(x: mx.array, codes: mx.array, scales: mx.array) -> mx.array:
    """As `_fp8`, each block's sum in float32 before its scale: right for every scale, and slow."""
    groups, blocks, _, k = codes.shape
    rows, total = x.shape[0], mx.array(0.0)
    inputs = x.astype(mx.float32).reshape(rows, groups, k // 32, 32).transpose(1, 2, 0, 3)
    codes, scales = codes.reshape(groups, blocks * 32, k // 32, 32), mx.repeat(scales.astype(mx.float32), 32, 1)
    for b in range(k // 32):
        part = inputs[:, b] @ e4m3()[codes[:, :, b]].swapaxes(-1, -2)
        total = total + part * scales[:, None, :, 0, b, 0]
    return total.astype(mx.bfloat16).swapaxes(0, 1).reshape(rows, -1)


class Matrices:
    """The products; `fuses`, whether element-wise work is fused, chooses how codes are decoded, never to what."""

    def __init__(self, fuses: bool):
        self._fp8 = mx.compile(partial(_fp8, _decode_bits)) if fuses else partial(_fp8, _decode_each)

    def fp8(self, x: mx.array, weight: Fp8Weight) -> mx.array:
        """bf16 [R, groups * K] -> bf16 [R, groups * N]: float32 sums, one rounding."""
        product = self._fp8 if weight.folded else _fp8_by_block
        out, groups = product(x, weight.codes, weight.scales), weight.codes.shape[0]
        padded, rows = out.shape[1] // groups, weight.rows // groups
        return out if padded == rows else out.reshape(-1, groups, padded)[..., :rows].reshape(-1, groups * rows)

    def bf16(self, x: mx.array, weight: mx.array) -> mx.array:
        """bf16 [R, K] by bf16 [N, K] -> bf16 [R, N]."""
        return x @ weight.T

    def f32(self, x: mx.array, weight: mx.array) -> mx.array:
        """f32 or bf16 [R, K] by f32 or bf16 [N, K] -> f32 [R, N]; a bf16 weight stays packed and is widened as it is
        used."""
        return x.astype(mx.float32) @ weight.astype(mx.float32).T

    def gathered_fp4(self, x: mx.array, ids: mx.array, weight: tuple[mx.array, mx.array]) -> mx.array:
        """bf16 [R, 1 or k, K], expert ids [R, k] -> bf16 [R, k, N]."""
        codes, scales = weight
        wide = x.astype(mx.float32)[:, :, None, :]
        wide = mx.broadcast_to(wide, (*ids.shape, 1, x.shape[-1]))
        out = mx.gather_qmm(
            wide, codes, scales, rhs_indices=ids.astype(mx.uint32), transpose=True, group_size=32, bits=4, mode="mxfp4"
        )
        return out.squeeze(-2).astype(mx.bfloat16)
