"""Keys of a config.json that nothing is built from: what would change the mathematics is refused, unless its value says
that it is not used; what nobody knows is warned of. Knows none of the values that the network is built from."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

# what means "not used" for keys of other models that would change what is computed
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n_group": (0, 1),
    "topk_group": (0, 1),
    "use_qk_norm": (False,),
    "qk_norm": (False,),
    "use_sliding_window": (True,),
    "rope_interleave": (True,),
    "partial_rotary_factor": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "attention_multiplier": (),
    "clip_qkv": (),
    "kv_lora_rank": (),
}
ROPE_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_factor": (1,),
    "mscale": (0, 1),
    "mscale_all_dim": (0, 1),
    "truncate": (True,),
    "short_factor": (),
    "long_factor": (),
}
ROPE_KNOWN = {
    "rope_type", "type", "factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "rope_theta",
}  # fmt: skip
# what is read elsewhere, and what trains, names, or stores without changing a forward of the text model
HARMLESS = {
    "_name_or_path", "architectures", "attention_bias", "attention_dropout", "auto_map", "aux_loss_alpha",
    "bos_token_id", "chunk_size_feed_forward", "dropout", "dtype", "eos_token_id", "ep_size",
    "first_k_dense_replace", "hidden_act",
    "hidden_dropout", "id2label", "image_end_token_id", "image_newline_token_id", "image_start_token_id",
    "image_token_id", "initializer_range", "intermediate_size", "is_decoder", "label2id", "layer_types", "mlp_bias",
    "model_type", "moe_layer_freq", "num_hash_layers", "num_key_value_heads", "output_attentions",
    "output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp", "quantization_config",
    "return_dict", "rope_scaling", "router_aux_loss_coef", "seq_aux", "text_config", "tie_word_embeddings",
    "tokenizer_class", "topk_method", "torch_dtype", "transformers_version", "use_cache", "vision_config",
    "video_token_id", "_attn_implementation", "attn_implementation", "gate_temp", "norm_topk_prob",
}  # fmt: skip


def strange(config: Mapping[str, Any], known: Collection[str]) -> str | None:
    """What a config.json asks for that this library does not compute, as "key = value, expected ..."; None if nothing.

    known: the keys of text_config that are built from. Warns of keys that nobody knows.
    """
    text = config.get("text_config", {})
    rope = text.get("rope_scaling") or {}
    unknown = []
    for where, holder, neutral, names in (
        ("", config, NEUTRAL, HARMLESS),
        ("text_config.", text, NEUTRAL, {*HARMLESS, *known}),
        ("text_config.rope_scaling.", rope, ROPE_NEUTRAL, ROPE_KNOWN),
    ):
        for key, value in holder.items():
            if key in neutral and not _unused(value, neutral[key]):
                allowed = " or ".join(map(repr, (*neutral[key], None)))
                return f"{where}{key} = {value!r} would change what is computed, expected {allowed}"
            if key not in neutral and key not in names:
                unknown.append(where + key)
    if unknown:
        warnings.warn(
            f"config keys that this library does not know: {', '.join(sorted(unknown))}; if one of them changes the "
            "mathematics, replies are wrong",
            stacklevel=2,
        )
    return None


def _unused(value: Any, allowed: tuple[Any, ...]) -> bool:
    return value is None or any(value == a and isinstance(value, bool) == isinstance(a, bool) for a in allowed)
