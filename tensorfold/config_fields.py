"""The fields of a ModelConfig, with the names under which both published files have them; checks nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _key(flat: str | None = "", hf: str = "", part: str = "", optional: bool = False, **kw: Any) -> Any:
    """A field read from `flat` ("" = same name, None = not in that file) and from `hf` (a dotted path)."""
    return field(metadata={"flat": flat, "hf": hf, "part": part, "optional": optional}, **kw)


def _mixed(flat: str = "") -> Any:
    return _key(flat, part="engram")


def _drafter(flat: str = "") -> Any:
    return _key(flat, part="drafter")


@dataclass(frozen=True)
class ConfigFields:
    """See ModelConfig; metadata says where each field is read from."""

    vocab_size: int = _key()
    hidden_size: int = _key("dim")
    moe_intermediate_size: int = _key("moe_inter_dim")
    num_hidden_layers: int = _key("n_layers")
    num_nextn_predict_layers: int = _key("n_mtp_layers")
    num_attention_heads: int = _key("n_heads")
    head_dim: int = _key()
    qk_rope_head_dim: int = _key("rope_head_dim")
    q_lora_rank: int = _key()
    o_lora_rank: int = _key()
    o_groups: int = _key()
    sliding_window: int = _key("window_size")
    rms_norm_eps: float = _key("norm_eps")
    n_routed_experts: int = _key()
    n_shared_experts: int = _key()
    num_experts_per_tok: int = _key("n_activated_experts")
    scoring_func: str = _key("score_func")
    routed_scaling_factor: float = _key("route_scale")
    swiglu_limit: float = _key()
    compress_ratios: tuple[int, ...] = _key()
    kv_source_layer_ids: tuple[int, ...] = _key("kv_source_layers")
    index_source_layer_ids: tuple[int, ...] = _key("index_source_layers")
    index_n_heads: int = _key()
    index_head_dim: int = _key()
    index_topk: int = _key()
    candidate_source_layer_id: int = _key("candidate_source_layer")
    candidate_topk_blocks: int = _key()
    candidate_block_size: int = _key()
    rope_theta: float = _key()
    compress_rope_theta: float = _key()
    original_max_position_embeddings: int = _key("original_seq_len", hf="rope_scaling.original_max_position_embeddings")
    rope_factor: float = _key(hf="rope_scaling.factor")
    beta_fast: float = _key(hf="rope_scaling.beta_fast")
    beta_slow: float = _key(hf="rope_scaling.beta_slow")
    hc_mult: int = _key()
    hc_sinkhorn_iters: int = _key()
    hc_eps: float = _key()
    engram_layer_ids: tuple[int, ...] = _key()
    engram_num_embeddings: tuple[int, ...] = _mixed()
    engram_max_ngram_size: int = _mixed()
    engram_vocab_size: int = _mixed()
    engram_n_heads: int = _mixed()
    engram_head_dim: int = _mixed()
    engram_pad_token_id: int = _mixed("engram_pad_id")
    engram_compressed_vocab_size: int = _mixed()
    dspark_block_size: int = _drafter()
    dspark_noise_token_id: int = _drafter()
    dspark_target_layer_ids: tuple[int, ...] = _drafter()
    dspark_markov_rank: int = _drafter()
    dspark_n_routed_experts: int = _drafter()
    dspark_num_experts_per_tok: int = _drafter("dspark_n_activated_experts")
    image_token_id: int = _key(hf="/image_token_id")
    norm_topk_prob: bool = _key(optional=True, default=True)
    gate_temp: float = _key(optional=True, default=1.0)
    bos_token_id: int = _key(None, hf="/bos_token_id", optional=True, default=0)
    eos_token_id: int | tuple[int, ...] = _key(None, hf="/eos_token_id", optional=True, default=1)
    pad_token_id: int = _key(None, hf="/pad_token_id", optional=True, default=2)
    max_position_embeddings: int = _key(None, default=None, compare=False)
