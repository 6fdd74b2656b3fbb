"""Keys of a config.json that nothing is built from: what would change the mathematics is refused, unless its value says
that it is not used; what nobody knows is warned of. Knows none of the values that the network is built from."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

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
QUANTISATION_NEUTRAL: dict[str, tuple[Any, ...]] = {"fmt": ("e4m3",), "modules_to_not_convert": ([],)}
QUANTISATION_KNOWN = {"quant_method", "activation_scheme", "weight_block_size", "scale_fmt", "expert_dtype"}
# the flat file's own names, beside those of its relatives
FLAT_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n_expert_groups": (0, 1),
    "n_limited_groups": (0, 1),
    "n_dense_layers": (0,),
    "n_hash_layers": (0,),
    "mscale": (0, 1),
}
FLAT_KNOWN = {"dtype", "expert_dtype", "scale_fmt", "model_type", "max_batch_size", "max_seq_len"}
IMAGES = ("vision_", "aligner_", "image_")
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


class Part(NamedTuple):
    """Keys of one object of a config file: where they stand, what is not used at these values, what is known."""

    where: str
    keys: Mapping[str, Any]
    neutral: Mapping[str, tuple[Any, ...]]
    known: Collection[str]


def parts_of_hf(config: Mapping[str, Any], built_from: Collection[str]) -> Iterator[Part]:
    """A checked config.json; `built_from`: the keys of text_config that a model is built from."""
    text = config["text_config"]
    yield Part("", config, NEUTRAL, HARMLESS)
    yield Part("quantization_config.", config["quantization_config"], QUANTISATION_NEUTRAL, QUANTISATION_KNOWN)
    yield Part("text_config.", text, NEUTRAL, {*HARMLESS, *built_from})
    yield Part("text_config.rope_scaling.", text["rope_scaling"], ROPE_NEUTRAL, ROPE_KNOWN)


def parts_of_flat(config: Mapping[str, Any], built_from: Collection[str]) -> Iterator[Part]:
    """A checked inference/config.json."""
    images = {key for key in config if key.startswith(IMAGES)}
    yield Part("", config, NEUTRAL | FLAT_NEUTRAL, {*HARMLESS, *FLAT_KNOWN, *images, *built_from})


def strange(parts: Iterator[Part]) -> str | None:
    """What asks for something that this library does not compute, as "key = value, expected ..."; None if nothing.

    Warns of keys that nobody knows.
    """
    unknown = []
    for where, keys, neutral, known in parts:
        for key, value in keys.items():
            if key in neutral and not _unused(value, neutral[key]):
                allowed = " or ".join(map(repr, (*neutral[key], None)))
                return f"{where}{key} = {value!r} would change what is computed, expected {allowed}"
            if key not in neutral and key not in known:
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
