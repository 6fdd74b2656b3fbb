"""The compressor of a KV source layer: latents of closed groups,
the rows they store and their index keys (docs/model.md#compressor)."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.backend.layout import RowKind
from tensorfold.network.plan import Compressed


@dataclass(frozen=True)
class NewRows:
    """What a source layer adds in a round: packed rows and keys uint8 [M, bytes];
    open pairs float32 [R, 2, hd] with ratio 2."""

    rows: mx.array
    keys: mx.array
    pairs: mx.array | None


class Compressor:
    """One KV source layer's compressor and index-key projection."""

    def __init__(self, source: WeightSource, prefix: str, ratio: int, backend: Backend):
        self.backend, self.ratio = backend, ratio
        p = f"{prefix}.attn"
        load = backend.load_matrix
        self.wkv = load(source, f"{p}.compressor.wkv.weight")
        self.wgate = load(source, f"{p}.compressor.wgate.weight") if ratio > 1 else None
        self.norm = source.array(f"{p}.compressor.norm.weight")
        self.wk = load(source, f"{p}.indexer.wk.weight")
        self.k_norm = source.array(f"{p}.indexer.k_norm.weight")

    def __call__(self, x: mx.array, plan: Compressed, pairs: mx.array | None) -> NewRows:
        """bf16 [R, D] and the slots' open pairs -> the round's new rows."""
        own = self.pairs(x)
        if not plan.closing.size:
            return NewRows(mx.zeros((0, 0), mx.uint8), mx.zeros((0, 0), mx.uint8), own)
        return NewRows(*self.publish(self.latents(x, own, plan, pairs), plan.table), own)

    def pairs(self, x: mx.array) -> mx.array | None:
        """Value and gate of every row, float32 [R, 2, hd]; None where a group is one token."""
        if self.wgate is None:
            return None
        return mx.stack([self.backend.matvec_f32(x, w) for w in (self.wkv, self.wgate)], 1)

    def latents(self, x: mx.array, own: mx.array | None, plan: Compressed, pairs: mx.array | None) -> mx.array:
        """Normed latents bf16 [M, hd] of the closing rows; groups begin in the slots' open pairs or in this round."""
        b = self.backend
        if own is None or pairs is None:
            return b.rms_norm(b.matvec_bf16(x, self.wkv)[plan.closing], self.norm)
        return b.rms_norm(b.compress_groups(pairs, own, plan.partner), self.norm)

    def publish(self, latent: mx.array, table: mx.array) -> tuple[mx.array, mx.array]:
        """Latents bf16 [M, hd] -> packed compressed rows and packed index keys."""
        b = self.backend
        key = b.norm_rope_pack(b.matvec_bf16(latent, self.wk), self.k_norm, table, RowKind.KEY)
        return b.norm_rope_pack(latent, None, table, RowKind.COMPRESSED), key
