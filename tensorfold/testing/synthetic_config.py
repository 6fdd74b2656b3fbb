"""Presets of small models and the two published config files for them; knows no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tensorfold.config import ModelConfig

_COMMON: dict[str, Any] = {
    "n_mtp_layers": 3, "dspark_block_size": 5, "n_shared_experts": 1, "score_func": "sqrtsoftplus", "route_scale": 1.5,
    "swiglu_limit": 10.0, "norm_eps": 1e-20, "rope_theta": 10000, "compress_rope_theta": 160000, "beta_fast": 32,
    "beta_slow": 1, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "engram_max_ngram_size": 4,
    "engram_pad_id": 2, "dtype": "fp8", "expert_dtype": "fp4",
}  # fmt: skip
_TEN_LAYERS: dict[str, Any] = {
    "n_layers": 10, "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0], "kv_source_layers": [2, 4, 6],
    "index_source_layers": [2, 4, 6, 8], "candidate_source_layer": 6, "engram_layer_ids": [1, 4],
    "dspark_target_layer_ids": [7, 8, 9], "vocab_size": 512, "dim": 256, "n_heads": 8, "o_groups": 4,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        **_COMMON, **_TEN_LAYERS, "moe_inter_dim": 96, "head_dim": 64, "rope_head_dim": 16, "q_lora_rank": 96,
        "o_lora_rank": 32, "window_size": 16, "n_routed_experts": 12, "n_activated_experts": 3, "index_n_heads": 4,
        "index_head_dim": 32, "index_topk": 8, "candidate_topk_blocks": 3, "candidate_block_size": 4,
        "dspark_n_routed_experts": 8, "dspark_n_activated_experts": 2, "dspark_markov_rank": 32,
        "engram_vocab_size": 200, "engram_n_heads": 2, "engram_head_dim": 32, "original_seq_len": 64, "rope_factor": 4,
    },
    "heads": {
        **_COMMON, **_TEN_LAYERS, "moe_inter_dim": 128, "head_dim": 512, "rope_head_dim": 64, "q_lora_rank": 128,
        "o_lora_rank": 64, "window_size": 128, "n_routed_experts": 16, "n_activated_experts": 6, "index_n_heads": 32,
        "index_head_dim": 128, "index_topk": 64, "candidate_topk_blocks": 12, "candidate_block_size": 8,
        "dspark_n_routed_experts": 8, "dspark_n_activated_experts": 3, "dspark_markov_rank": 64,
        "engram_vocab_size": 400, "engram_n_heads": 8, "engram_head_dim": 256, "original_seq_len": 256,
        "rope_factor": 16,
    },
    "mid": {
        **_COMMON, "n_layers": 4, "compress_ratios": [0, 2, 1, 1, 0, 0, 0], "kv_source_layers": [1, 2],
        "index_source_layers": [1, 2, 3], "candidate_source_layer": 2, "engram_layer_ids": [],
        "dspark_target_layer_ids": [1, 2, 3], "vocab_size": 4096, "dim": 2048, "moe_inter_dim": 512, "n_heads": 16,
        "head_dim": 512, "rope_head_dim": 64, "q_lora_rank": 512, "o_groups": 4, "o_lora_rank": 512,
        "window_size": 128, "n_routed_experts": 12, "n_activated_experts": 6, "index_n_heads": 16,
        "index_head_dim": 128, "index_topk": 512, "candidate_topk_blocks": 2048, "candidate_block_size": 8,
        "dspark_n_routed_experts": 8, "dspark_n_activated_experts": 3, "dspark_markov_rank": 128,
        "original_seq_len": 65536, "rope_factor": 16,
    },
    "published": {
        **_COMMON, "n_layers": 40, "compress_ratios": [0, 0, *[2] * 18, *[1] * 20, 0, 0, 0],
        "kv_source_layers": [2, 8, 14, 20], "index_source_layers": [2, 8, 14, 20, 24, 28, 32, 36],
        "candidate_source_layer": 20, "engram_layer_ids": [1, 14], "dspark_target_layer_ids": [37, 38, 39],
        "vocab_size": 129280, "dim": 5120, "moe_inter_dim": 2304, "n_heads": 64, "head_dim": 512, "rope_head_dim": 64,
        "q_lora_rank": 1280, "o_groups": 8, "o_lora_rank": 1024, "window_size": 128, "n_routed_experts": 384,
        "n_activated_experts": 6, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512,
        "candidate_topk_blocks": 2048, "candidate_block_size": 8, "dspark_n_routed_experts": 128,
        "dspark_n_activated_experts": 3, "dspark_markov_rank": 256, "dspark_noise_token_id": 128799,
        "image_token_id": 129264, "engram_vocab_size": 16_000_000, "engram_n_heads": 8, "engram_head_dim": 256,
        "original_seq_len": 65536, "rope_factor": 16,
    },
}  # fmt: skip
_COMPUTED = {"engram_num_embeddings", "engram_compressed_vocab_size"}
_ENGRAM_KEYS = {f.metadata["flat"] or f.name for f in fields(ModelConfig) if f.metadata["part"] == "engram"}
_DRAFTER_KEYS = {f.metadata["flat"] or f.name for f in fields(ModelConfig) if f.metadata["part"] == "drafter"}
_FLAT_KEYS = {f.metadata["flat"] or f.name for f in fields(ModelConfig) if f.metadata["flat"] is not None}


def flat_config(
    config: str | Mapping[str, Any], engram: bool, drafter: bool, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The keys of inference/config.json, without those that follow from the tokenizer."""
    if isinstance(config, str) and config not in PRESETS:
        raise ValueError(f"no preset {config!r}; presets: {', '.join(PRESETS)}")
    base = PRESETS[config] if isinstance(config, str) else {**PRESETS["tiny"], **config}
    flat = {**base, **overrides}
    refused = flat.keys() - (_FLAT_KEYS - _COMPUTED) - {"dtype", "expert_dtype"}
    if refused:
        raise ValueError(f"unknown or computed keys of inference/config.json: {', '.join(sorted(refused))}")
    if not engram:
        flat["engram_layer_ids"] = []
    if not flat["engram_layer_ids"]:
        flat = {key: value for key, value in flat.items() if key not in _ENGRAM_KEYS}
    if not drafter and flat["n_mtp_layers"]:
        flat["compress_ratios"] = flat["compress_ratios"][: flat["n_layers"]]
        flat["n_mtp_layers"] = 0
    if not flat["n_mtp_layers"]:
        flat = {key: value for key, value in flat.items() if key not in _DRAFTER_KEYS}
    else:
        flat.setdefault("dspark_noise_token_id", flat["vocab_size"] - 2)
    flat.setdefault("image_token_id", flat["vocab_size"] - 1)
    return flat


def hf_config(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The Hugging Face config.json that says the same."""
    text: dict[str, Any] = {
        "model_type": "deepseek_v41_text", "hidden_act": "silu", "num_key_value_heads": 1, "topk_method": "noaux_tc",
        "norm_topk_prob": True, "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "use_cache": True, "tie_word_embeddings": False, "rope_scaling": {"rope_type": "yarn"},
        "max_position_embeddings": int(flat["original_seq_len"] * flat["rope_factor"]),
    }  # fmt: skip
    top: dict[str, Any] = {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 2, "dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0", "expert_dtype": "fp4",
        },
    }  # fmt: skip
    for f in fields(ModelConfig):
        key = f.metadata["flat"] or f.name
        if f.metadata["flat"] is None or key not in flat:
            continue
        path = f.metadata["hf"] or f.name
        if path.startswith("/"):
            top[path[1:]] = flat[key]
        elif "." in path:
            text["rope_scaling"][path.split(".")[1]] = flat[key]
        else:
            text[path] = flat[key]
    return {**top, "text_config": text}
