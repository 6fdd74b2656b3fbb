"""What a config may say: types, fixed values, ranges and contradictions; knows no files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tensorfold.config_fields import ConfigFields
from tensorfold.roles import nearest_source

MODEL_TYPE = "deepseek_v41"
TEXT_MODEL_TYPE = "deepseek_v41_text"
SUPPORTED_MODEL_TYPES = (MODEL_TYPE,)
ARCHITECTURE = "DeepseekV41ForCausalLM"

# Values the published code has; another value would mean a computation that this library does not have.
QUANTIZATION: dict[str, Any] = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
}
FIXED_TEXT: dict[str, Any] = {
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "topk_method": "noaux_tc",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "first_k_dense_replace": 0,
    "num_hash_layers": 0,
    "moe_layer_freq": 1,
}
FIXED_FLAT: dict[str, Any] = {"dtype": "fp8", "expert_dtype": "fp4", "scale_fmt": "ue8m0"}
FIXED: dict[str, Any] = {
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "gate_temp": 1.0,
    "n_shared_experts": 1,
    "hc_mult": 4,
}

# Larger than any model of this family, small enough that no config can exhaust memory before a file is compared.
LARGEST = 2**40
MOST_LAYERS = 4096
MOST_EXPERTS = 1_000_000


ONE_OR_MORE = "int | tuple[int, ...]"


class ConfigError(ValueError):
    """A config that is missing something, contradicts itself, or asks for what this library does not compute."""


def typed(where: str, value: Any, kind: str) -> Any:
    """`value` as the kind of a ModelConfig field; an int is taken for a float, a bool never for a number."""
    if kind == "bool":
        if isinstance(value, bool):
            return value
    elif kind == "str":
        if isinstance(value, str):
            return value
    elif kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            if not -1 < value <= LARGEST:
                raise ConfigError(f"{where} = {_show(value)}, expected an integer from 0 to {LARGEST}")
            return value
    elif kind == ONE_OR_MORE:
        return _one_or_more(where, value)
    elif kind == "float":
        if isinstance(value, int | float) and not isinstance(value, bool):
            if abs(value) <= 1e300 and math.isfinite(value):
                return float(value)
            raise ConfigError(f"{where} = {_show(value)}, expected a finite number")
    elif isinstance(value, list | tuple):
        return tuple(typed(f"{where}[{i}]", item, "int") for i, item in enumerate(value))
    words = {"bool": "true or false", "str": "a string", "int": "an integer", "float": "a number"}
    raise ConfigError(f"{where} = {_show(value)}, expected {words.get(kind, 'a list of integers')}")


def check_hf(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check what has one allowed value in config.json; returns the text_config."""
    _model_type(config.get("model_type"))
    architectures = config.get("architectures", [ARCHITECTURE])
    if not isinstance(architectures, list) or ARCHITECTURE not in architectures:
        raise ConfigError(f"architectures = {_show(architectures)}, expected [{ARCHITECTURE!r}]")
    text = _object(config, "text_config", "text_config")
    if text.get("model_type") != TEXT_MODEL_TYPE:
        raise ConfigError(f"text_config.model_type = {_show(text.get('model_type'))}, expected {TEXT_MODEL_TYPE!r}")
    quantization = _object(config, "quantization_config", "quantization_config")
    for key, value in QUANTIZATION.items():
        if key not in quantization:
            raise ConfigError(f"quantization_config.{key} is missing, expected {value!r}")
        _fixed(f"quantization_config.{key}", quantization[key], value)
    for key, value in FIXED_TEXT.items():
        if key in text:
            _fixed(f"text_config.{key}", text[key], value)
    if "tie_word_embeddings" in config:
        _fixed("tie_word_embeddings", config["tie_word_embeddings"], False)
    scaling = _object(text, "rope_scaling", "text_config.rope_scaling")
    kind = scaling.get("rope_type", scaling.get("type"))
    _fixed("text_config.rope_scaling.rope_type", kind, "yarn")
    return text


def check_flat(config: Mapping[str, Any]) -> None:
    """Check what has one allowed value in inference/config.json."""
    if "model_type" in config:
        _model_type(config["model_type"])
    for key, value in FIXED_FLAT.items():
        if key in config:
            _fixed(key, config[key], value)
        elif key != "scale_fmt":
            raise ConfigError(f"{key} is missing, expected {value!r}")


def check(c: ConfigFields) -> None:
    """Ranges, divisibility and contradictions between keys; raises ConfigError naming key and value."""
    for key, value in FIXED.items():
        if getattr(c, key) != value:
            raise _bad(c, key, f"is not supported, expected {value!r}")
    _check_sizes(c)
    _check_layers(c)
    _check_ids(c)


def _check_sizes(c: ConfigFields) -> None:
    positive = """vocab_size hidden_size moe_intermediate_size num_hidden_layers num_attention_heads head_dim
        qk_rope_head_dim q_lora_rank o_lora_rank o_groups sliding_window rms_norm_eps n_routed_experts
        num_experts_per_tok routed_scaling_factor swiglu_limit index_n_heads index_head_dim index_topk
        candidate_topk_blocks candidate_block_size rope_theta compress_rope_theta original_max_position_embeddings
        beta_fast beta_slow hc_sinkhorn_iters hc_eps max_position_embeddings"""
    blocks = "hidden_size moe_intermediate_size head_dim q_lora_rank o_lora_rank index_head_dim"
    if c.engram_layer_ids:
        positive += " engram_vocab_size engram_n_heads engram_head_dim engram_compressed_vocab_size"
        blocks += " engram_head_dim"
    if c.num_nextn_predict_layers:
        positive += " dspark_block_size dspark_markov_rank dspark_n_routed_experts dspark_num_experts_per_tok"
    for key in positive.split():
        if getattr(c, key) <= 0:
            raise _bad(c, key, "must be positive")
    for key in blocks.split():
        if getattr(c, key) % 32:
            raise _bad(c, key, "must be a multiple of 32, the size of a scale's block")
    if c.num_attention_heads % c.o_groups:
        raise _bad(c, "num_attention_heads", f"is not a multiple of o_groups = {c.o_groups}")
    if c.qk_rope_head_dim % 2:
        raise _bad(c, "qk_rope_head_dim", "must be even")
    _at_most(c, "qk_rope_head_dim", "head_dim")
    _at_most(c, "qk_rope_head_dim", "index_head_dim")
    _at_most(c, "num_experts_per_tok", "n_routed_experts")
    _at_most(c, "dspark_num_experts_per_tok", "dspark_n_routed_experts")
    _at_most(c, "beta_slow", "beta_fast")
    if c.rope_factor < 1:
        raise _bad(c, "rope_factor", "must be at least 1")
    if c.index_topk > c.candidate_topk_blocks * c.candidate_block_size:
        rows = f"candidate_topk_blocks * candidate_block_size = {c.candidate_topk_blocks * c.candidate_block_size}"
        raise _bad(c, "index_topk", f"is more than {rows}, so readers could not fill it")
    if c.engram_layer_ids and c.engram_max_ngram_size < 2:
        raise _bad(c, "engram_max_ngram_size", "must be at least 2")


def _check_layers(c: ConfigFields) -> None:
    layers, stages = c.num_hidden_layers, c.num_nextn_predict_layers
    for key, value in (("num_hidden_layers", layers), ("num_nextn_predict_layers", stages)):
        if value > MOST_LAYERS:
            raise _bad(c, key, f"is more than {MOST_LAYERS}")
    if layers * c.n_routed_experts > MOST_EXPERTS:
        raise _bad(c, "n_routed_experts", f"times {layers} layers is more than {MOST_EXPERTS}")
    if stages * c.dspark_n_routed_experts > MOST_EXPERTS:
        raise _bad(c, "dspark_n_routed_experts", f"times {stages} stages is more than {MOST_EXPERTS}")
    ratios = c.compress_ratios
    if len(ratios) != layers + stages:
        want = f"num_hidden_layers + num_nextn_predict_layers = {layers} + {stages}"
        raise _bad(c, "compress_ratios", f"has {len(ratios)} entries, expected {want}")
    for i, ratio in enumerate(ratios):
        if ratio not in (0, 1, 2) or (i >= layers and ratio):
            allowed = "0 (a drafter stage)" if i >= layers else "0, 1 or 2"
            raise ConfigError(f"compress_ratios[{i}] = {ratio}, expected {allowed}")
    for key in ("kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids", "dspark_target_layer_ids"):
        _ascending(c, key)
    kv, index, candidate = c.kv_source_layer_ids, c.index_source_layer_ids, c.candidate_source_layer_id
    for key, sources in (("kv_source_layer_ids", kv), ("index_source_layer_ids", index)):
        for s in sources:
            if not ratios[s]:
                raise _bad(c, key, f"names layer {s}, whose compress_ratios entry is 0")
    for layer in range(layers):
        if not ratios[layer]:
            continue
        owner, selector = nearest_source(layer, kv), nearest_source(layer, index)
        if owner is None:
            raise _bad(c, "kv_source_layer_ids", f"has no source at or before layer {layer} (ratio {ratios[layer]})")
        if ratios[owner] != ratios[layer]:
            raise _bad(c, "kv_source_layer_ids", f"gives layer {layer} (ratio {ratios[layer]}) the rows of layer "
                       f"{owner} (ratio {ratios[owner]})")  # fmt: skip
        if owner not in index:
            raise _bad(c, "index_source_layer_ids", f"lacks layer {owner}, which owns compressed rows")
        if selector is not None and selector < owner:
            raise _bad(c, "index_source_layer_ids", f"gives layer {layer} the selection of layer {selector}")
    if candidate not in index:
        raise _bad(c, "candidate_source_layer_id", f"is not among index_source_layer_ids = {list(index)}")
    for s in index:
        if s > candidate and nearest_source(s, kv) != nearest_source(candidate, kv):
            raise _bad(c, "candidate_source_layer_id", f"picks blocks for layer {s}, which reads other rows")
    if len(c.engram_num_embeddings) != len(c.engram_layer_ids):
        raise _bad(c, "engram_num_embeddings", f"has not one entry for each of {list(c.engram_layer_ids)}")
    if 0 in c.engram_num_embeddings:
        raise _bad(c, "engram_num_embeddings", "must be positive")
    if bool(c.dspark_target_layer_ids) != bool(stages):
        raise _bad(c, "dspark_target_layer_ids", f"does not fit num_nextn_predict_layers = {stages}")


def _check_ids(c: ConfigFields) -> None:
    keys = ["image_token_id", "bos_token_id", "eos_token_id", "pad_token_id"]
    keys += ["engram_pad_token_id"] if c.engram_layer_ids else []
    keys += ["dspark_noise_token_id"] if c.num_nextn_predict_layers else []
    for key in keys:
        value = getattr(c, key)
        if max(value if isinstance(value, tuple) else (value,)) >= c.vocab_size:
            raise _bad(c, key, f"is outside vocab_size = {c.vocab_size}")
    _at_most(c, "engram_compressed_vocab_size", "vocab_size")


def _one_or_more(where: str, value: Any) -> int | tuple[int, ...]:
    """An integer, or a list of different ones; a list of one is that one, so that equal models have equal configs."""
    if not isinstance(value, list | tuple):
        return typed(where, value, "int")  # type: ignore[no-any-return]
    found: tuple[int, ...] = typed(where, value, "tuple[int, ...]")
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"{where} = {_show(value)}, expected an integer or a list of different integers")
    return found if len(found) > 1 else found[0]


def _model_type(found: Any) -> None:
    if found not in SUPPORTED_MODEL_TYPES:
        supported = ", ".join(SUPPORTED_MODEL_TYPES)
        raise ConfigError(f"model_type = {_show(found)} is not supported; supported: {supported} (with text_config)")


def _object(holder: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    if key not in holder:
        raise ConfigError(f"{where} is missing")
    if not isinstance(holder[key], dict):
        raise ConfigError(f"{where} = {_show(holder[key])}, expected an object")
    return holder[key]  # type: ignore[no-any-return]


def _fixed(where: str, found: Any, expected: Any) -> None:
    if found != expected or isinstance(found, bool) != isinstance(expected, bool):
        raise ConfigError(f"{where} = {_show(found)}, expected {expected!r}")


def _ascending(c: ConfigFields, key: str) -> None:
    ids: Sequence[int] = getattr(c, key)
    if any(a >= b for a, b in pairwise(ids)):
        raise _bad(c, key, "must be ascending without repeats")
    if ids and ids[-1] >= c.num_hidden_layers:
        raise _bad(c, key, f"names a layer outside num_hidden_layers = {c.num_hidden_layers}")


def _at_most(c: ConfigFields, key: str, limit: str) -> None:
    if getattr(c, key) > getattr(c, limit):
        raise _bad(c, key, f"is more than {limit} = {getattr(c, limit)}")


def _bad(c: ConfigFields, key: str, why: str) -> ConfigError:
    """An error that also gives the key's name in the flat file, where it has another one."""
    flat = type(c).__dataclass_fields__[key].metadata["flat"]
    value = getattr(c, key)
    other = f" ({flat} in inference/config.json)" if flat else ""
    return ConfigError(f"{key}{other} = {_show(list(value) if isinstance(value, tuple) else value)} {why}")


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "an integer with thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."
