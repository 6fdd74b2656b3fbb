"""The complete list of tensors a config asks for; knows no files and reads no weights.

Restates docs/model.md#checkpoint: linear `X` in FP8 is `X.weight` F8_E4M3 [out, in] with one UE8M0 scale a
32 x 32 block; in FP4 it is `X.weight` I8 [out, in / 2] (two codes a byte) with one UE8M0 scale a row and 32 inputs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tensorfold.config import ModelConfig

BLOCK = 32
ITEM_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}

# The image side of the model: known, not needed for text.
SKIPPED = re.compile(r"(vision|aligner)\..+|image_\w+|(layers|mtp)\.\d+\.ffn\.gate\.bias_vl")


class TensorSpec(NamedTuple):
    """dtype: its safetensors name (BF16, F32, F8_E4M3, F8_E8M0 or I8); shape: the shape on disk."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        count = ITEM_BYTES[self.dtype]
        for n in self.shape:
            count *= n
        return count


Tensors = dict[str, TensorSpec]


def is_skipped(name: str) -> bool:
    """True for tensors of the published checkpoint that serve images alone."""
    return SKIPPED.fullmatch(name) is not None


def is_drafter(name: str) -> bool:
    """True for the drafter's own tensors."""
    return name.startswith("mtp.")


def expected_tensors(config: ModelConfig, drafter: bool = True) -> Tensors:
    """Every tensor of the text network by name, in the published order of shards; without `drafter` no mtp.*.

    The image router's `bias_vl` is left out: it is skipped where present.
    """
    out: Tensors = {}
    for group in tensor_groups(config, drafter).values():
        out.update(group)
    return out


def tensor_groups(config: ModelConfig, drafter: bool = True) -> dict[str, Tensors]:
    """The same by shard as published: embed, layers.0.., head, mtp.0.., and last the Engram tables of each layer."""
    c = config
    hidden, vocab = c.hidden_size, c.vocab_size
    groups: dict[str, Tensors] = {"embed": {"embed.weight": _bf16(vocab, hidden)}}
    for role in c.roles:
        group = groups[f"layers.{role.layer}"] = _block(c, f"layers.{role.layer}", c.n_routed_experts)
        attn = f"layers.{role.layer}.attn"
        if role.owns_kv:
            _compressor(c, attn, role.ratio, group)
        if role.owns_index:
            _indexer(c, attn, role.owns_kv, group)
    groups["head"] = {"norm.weight": _bf16(hidden), "head.weight": _bf16(vocab, hidden)}
    stages = c.num_nextn_predict_layers if drafter else 0
    for k in range(stages):
        group = groups[f"mtp.{k}"] = _block(c, f"mtp.{k}", c.dspark_n_routed_experts)
        if k == 0:
            _fp8("mtp.0.main_proj", hidden, hidden * len(c.dspark_target_layer_ids), group)
            group["mtp.0.main_norm.weight"] = _bf16(hidden)
        if k == stages - 1:
            rank = c.dspark_markov_rank
            group[f"mtp.{k}.norm.weight"] = _bf16(hidden)
            group[f"mtp.{k}.markov_head.embed.weight"] = _bf16(vocab, rank)
            group[f"mtp.{k}.markov_head.head.weight"] = _bf16(vocab, rank)
            group[f"mtp.{k}.confidence_head.proj.weight"] = _bf16(1, hidden + rank)
    for layer, rows in zip(c.engram_layer_ids, c.engram_num_embeddings, strict=True):
        groups[f"layers.{layer}.engram"] = _engram(c, f"layers.{layer}.engram", rows)
    return groups


def _bf16(*shape: int) -> TensorSpec:
    return TensorSpec("BF16", shape)


def _f32(*shape: int) -> TensorSpec:
    return TensorSpec("F32", shape)


def _fp8(name: str, rows: int, cols: int, out: Tensors) -> None:
    out[f"{name}.weight"] = TensorSpec("F8_E4M3", (rows, cols))
    out[f"{name}.scale"] = TensorSpec("F8_E8M0", (-(-rows // BLOCK), -(-cols // BLOCK)))


def _fp4(rows: int, cols: int) -> tuple[TensorSpec, TensorSpec]:
    return TensorSpec("I8", (rows, cols // 2)), TensorSpec("F8_E8M0", (rows, cols // BLOCK))


def _block(c: ModelConfig, p: str, experts: int) -> Tensors:
    """What every layer and every drafter stage has: attention, router, experts, norms, hyper-connections."""
    hidden, inner, heads = c.hidden_size, c.moe_intermediate_size, c.num_attention_heads * c.head_dim
    out: Tensors = {f"{p}.attn.attn_sink": _f32(c.num_attention_heads)}
    _fp8(f"{p}.attn.wq_a", c.q_lora_rank, hidden, out)
    out[f"{p}.attn.q_norm.weight"] = _bf16(c.q_lora_rank)
    _fp8(f"{p}.attn.wq_b", heads, c.q_lora_rank, out)
    _fp8(f"{p}.attn.wkv", c.head_dim, hidden, out)
    out[f"{p}.attn.kv_norm.weight"] = _bf16(c.head_dim)
    _fp8(f"{p}.attn.wo_a", c.o_groups * c.o_lora_rank, heads // c.o_groups, out)
    _fp8(f"{p}.attn.wo_b", hidden, c.o_groups * c.o_lora_rank, out)
    out[f"{p}.ffn.gate.weight"] = _bf16(experts, hidden)
    out[f"{p}.ffn.gate.bias"] = _f32(experts)
    up, down = _fp4(inner, hidden), _fp4(hidden, inner)
    for e in range(experts):
        q = f"{p}.ffn.experts.{e}."
        out[q + "w1.weight"], out[q + "w1.scale"] = up
        out[q + "w2.weight"], out[q + "w2.scale"] = down
        out[q + "w3.weight"], out[q + "w3.scale"] = up
    _fp8(f"{p}.ffn.shared_experts.w1", inner, hidden, out)
    _fp8(f"{p}.ffn.shared_experts.w2", hidden, inner, out)
    _fp8(f"{p}.ffn.shared_experts.w3", inner, hidden, out)
    out[f"{p}.attn_norm.weight"] = out[f"{p}.ffn_norm.weight"] = _bf16(hidden)
    mixes = (2 + c.hc_mult) * c.hc_mult
    for part in ("attn", "ffn"):
        out[f"{p}.hc_{part}_fn"] = _f32(mixes, c.hc_mult * hidden)
        out[f"{p}.hc_{part}_base"] = _f32(mixes)
        out[f"{p}.hc_{part}_scale"] = _f32(3)
    return out


def _compressor(c: ModelConfig, attn: str, ratio: int, out: Tensors) -> None:
    out[f"{attn}.compressor.wkv.weight"] = _bf16(c.head_dim, c.hidden_size)
    if ratio > 1:
        out[f"{attn}.compressor.wgate.weight"] = _bf16(c.head_dim, c.hidden_size)
    out[f"{attn}.compressor.norm.weight"] = _bf16(c.head_dim)


def _indexer(c: ModelConfig, attn: str, owns_keys: bool, out: Tensors) -> None:
    _fp8(f"{attn}.indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank, out)
    out[f"{attn}.indexer.weights_proj.weight"] = _bf16(c.index_n_heads, c.hidden_size)
    if owns_keys:
        out[f"{attn}.indexer.wk.weight"] = _bf16(c.index_head_dim, c.head_dim)
        out[f"{attn}.indexer.k_norm.weight"] = _bf16(c.index_head_dim)


def _engram(c: ModelConfig, p: str, rows: int) -> Tensors:
    columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim
    out: Tensors = {
        f"{p}.embed.weight": TensorSpec("F8_E4M3", (rows, c.engram_head_dim)),
        f"{p}.embed.scale": TensorSpec("F8_E8M0", (rows, c.engram_head_dim // BLOCK)),
    }
    _fp8(f"{p}.wkv", c.hidden_size * (c.hc_mult + 1), columns, out)
    out[f"{p}.q_weight"] = out[f"{p}.k_weight"] = _bf16(c.hc_mult, c.hidden_size)
    return out
