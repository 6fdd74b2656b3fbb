"""ModelConfig: both published files give one object, and nothing doubtful is let through."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensorfold.config import ConfigError, ModelConfig

DATA = Path(__file__).parent / "data"
HF = json.loads((DATA / "config/hf.json").read_text())
FLAT = json.loads((DATA / "config/flat.json").read_text())
TEXT_KEYS = [
    k
    for k in HF["text_config"]
    if k not in ("num_key_value_heads", "hidden_act", "topk_method", "use_cache", "initializer_range", "norm_topk_prob")
]


def hf(**text: Any) -> dict[str, Any]:
    config = copy.deepcopy(HF)
    config["text_config"].update(text)
    return config


def flat(**keys: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FLAT), **keys}


def folder(tmp_path: Path, hf_config: Any = None, flat_config: Any = None) -> Path:
    if hf_config is not None:
        (tmp_path / "config.json").write_text(json.dumps(hf_config))
    if flat_config is not None:
        (tmp_path / "inference").mkdir()
        (tmp_path / "inference/config.json").write_text(json.dumps(flat_config))
    return tmp_path


def test_both_files_give_equal_objects_and_hashes() -> None:
    a, b = ModelConfig.from_hf(HF), ModelConfig.from_flat(FLAT)
    assert a == b and hash(a) == hash(b)
    assert a.max_position_embeddings == b.max_position_embeddings == 1048576
    assert (a.rms_norm_eps, a.hc_eps, a.rope_factor, a.gate_temp) == (1e-20, 1e-6, 16.0, 1.0)
    assert a.compress_ratios == (0,) * 2 + (2,) * 18 + (1,) * 20 + (0,) * 3
    assert (a.bos_token_id, a.eos_token_id, a.pad_token_id, a.image_token_id) == (0, 1, 2, 129264)


@pytest.mark.parametrize("name", ["tiny_calm"])
def test_files_on_disk_agree_with_each_other(name: str) -> None:
    config = ModelConfig.from_folder(DATA / name)
    assert config == ModelConfig.from_flat(json.loads((DATA / name / "inference/config.json").read_text()))


def test_a_folder_may_hold_either_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = ModelConfig.from_folder(folder(tmp_path / "a", hf_config=HF))
    two = ModelConfig.from_folder(folder(tmp_path / "b", flat_config=FLAT))
    assert one == two
    (tmp_path / "c").mkdir()
    with pytest.raises(FileNotFoundError, match=r"neither config\.json nor inference/config\.json"):
        ModelConfig.from_folder(tmp_path / "c")


def test_roles_of_the_published_model() -> None:
    roles = ModelConfig.from_hf(HF).roles
    assert len(roles) == 40
    assert [r.layer for r in roles if r.owns_kv] == [2, 8, 14, 20]
    assert [r.layer for r in roles if r.owns_index] == [2, 8, 14, 20, 24, 28, 32, 36]
    assert [r.kv_source for r in roles] == [None] * 2 + [2] * 6 + [8] * 6 + [14] * 6 + [20] * 20
    assert [r.index_source for r in roles[20:]] == [20] * 4 + [24] * 4 + [28] * 4 + [32] * 4 + [36] * 4
    assert {r.layer: r.candidates for r in roles if r.candidates} == {
        20: "write",
        **dict.fromkeys((24, 28, 32, 36), "read"),
    }
    assert {r.layer: r.engram for r in roles if r.engram is not None} == {1: 0, 14: 1}
    assert {r.layer: r.tap for r in roles if r.tap is not None} == {37: 0, 38: 1, 39: 2}


def test_roles_print_as_a_table() -> None:
    lines = str(ModelConfig.from_hf(HF).roles).splitlines()
    assert len(lines) == 41 and len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["layer", "ratio", "kv", "index", "candidates", "engram", "tap"]
    assert lines[21].split() == ["20", "1", "own", "own", "write", "-", "-"]
    assert lines[39].split() == ["38", "1", "20", "36", "-", "-", "1"]


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_a_missing_text_key_is_named(key: str) -> None:
    config = hf()
    del config["text_config"][key]
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize("key", ["factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "rope_type"])
def test_a_missing_rope_scaling_key_is_named(key: str) -> None:
    config = hf()
    del config["text_config"]["rope_scaling"][key]
    with pytest.raises(ConfigError, match=rf"text_config\.rope_scaling\.{key}"):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize("key", ["model_type", "text_config", "quantization_config", "image_token_id"])
def test_a_missing_top_key_is_named(key: str) -> None:
    config = hf()
    del config[key]
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize("key", list(HF["quantization_config"]))
def test_quantization_is_the_published_one(key: str) -> None:
    config = hf()
    for value in ("int4", None, [128, 128], True):
        config["quantization_config"][key] = value
        with pytest.raises(ConfigError, match=rf"quantization_config\.{key} = .*expected"):
            ModelConfig.from_hf(config)
    del config["quantization_config"][key]
    with pytest.raises(ConfigError, match=rf"quantization_config\.{key} is missing"):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize("key", list(FLAT))
def test_a_missing_flat_key_is_named(key: str) -> None:
    config = flat()
    del config[key]
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_flat(config)


@pytest.mark.parametrize("key", list(FLAT))
@pytest.mark.parametrize("value", [None, True, {}, "x", [True], [0.5], float("nan"), float("inf"), -1, 10**400])
def test_a_mistyped_or_non_finite_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_flat(flat(**{key: value}))


@pytest.mark.parametrize("key", TEXT_KEYS)
@pytest.mark.parametrize("value", [None, True, "7", float("nan")])
def test_a_mistyped_text_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_hf(hf(**{key: value}))


@pytest.mark.parametrize(
    "found",
    [
        "deepseek_v4",
        "deepseek_v41_text",
        "deepseek_v3",
        "DEEPSEEK_V41",
        "deepseek_v411",
        "",
        None,
        41,
        ["deepseek_v41"],
    ],
)
def test_only_the_exact_model_type_is_served(found: Any) -> None:
    with pytest.raises(
        ConfigError, match=re.escape(f"model_type = {found!r} is not supported; supported: deepseek_v41 ")
    ):
        ModelConfig.from_hf({**hf(), "model_type": found})
    with pytest.raises(ConfigError, match="supported: deepseek_v41 "):
        ModelConfig.from_flat(flat(model_type=found))


@pytest.mark.parametrize("found", ["deepseek_v41", "deepseek_v4_text", None])
def test_only_the_exact_text_model_type_is_served(found: Any) -> None:
    with pytest.raises(ConfigError, match=r"text_config\.model_type"):
        ModelConfig.from_hf(hf(model_type=found))


CONTRADICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("compress_ratios.* has 42 entries", {"compress_ratios": FLAT["compress_ratios"][1:]}),
    (r"compress_ratios\[2\] = 4, expected 0, 1 or 2", {"compress_ratios": [0, 0, 4] + FLAT["compress_ratios"][3:]}),
    (r"compress_ratios\[42\] = 1, expected 0 .a drafter", {"compress_ratios": FLAT["compress_ratios"][:-1] + [1]}),
    ("kv_source_layer_ids .* has no source at or before layer 2", {"kv_source_layers": [8, 14, 20]}),
    ("kv_source_layer_ids .*gives layer 20 .ratio 1. the rows of layer 14 .ratio 2.", {"kv_source_layers": [2, 8, 14]}),
    ("kv_source_layer_ids .*must be ascending", {"kv_source_layers": [8, 2, 14, 20]}),
    ("kv_source_layer_ids .*must be ascending", {"kv_source_layers": [2, 2, 8, 14, 20]}),
    ("kv_source_layer_ids .*outside num_hidden_layers = 40", {"kv_source_layers": [2, 8, 14, 20, 40]}),
    ("kv_source_layer_ids .*names layer 1, whose compress_ratios", {"kv_source_layers": [1, 2, 8, 14, 20]}),
    ("index_source_layer_ids .*lacks layer 8", {"index_source_layers": [2, 14, 20, 24]}),
    ("candidate_source_layer_id .*= 21 is not among", {"candidate_source_layer": 21}),
    ("candidate_source_layer_id .*picks blocks for layer 20", {"candidate_source_layer": 14}),
    ("engram_num_embeddings .*has not one entry", {"engram_num_embeddings": [384006168]}),
    ("engram_num_embeddings .*must be positive", {"engram_num_embeddings": [0, 384016682]}),
    ("engram_layer_ids .*outside", {"engram_layer_ids": [1, 40]}),
    ("engram_max_ngram_size", {"engram_max_ngram_size": 1}),
    ("engram_compressed_vocab_size .*more than vocab_size", {"engram_compressed_vocab_size": 129281}),
    ("dspark_target_layer_ids .*outside", {"dspark_target_layer_ids": [38, 39, 40]}),
    ("dspark_target_layer_ids .*does not fit", {"dspark_target_layer_ids": []}),
    ("dspark_noise_token_id .*outside vocab_size", {"dspark_noise_token_id": 129280}),
    ("image_token_id .*outside vocab_size", {"image_token_id": 129280}),
    ("hidden_size .dim in inference/config.json. = 5000 must be a multiple of 32", {"dim": 5000}),
    ("moe_intermediate_size .*multiple of 32", {"moe_inter_dim": 2300}),
    ("o_lora_rank .*multiple of 32", {"o_lora_rank": 1000}),
    ("index_head_dim .*multiple of 32", {"index_head_dim": 100}),
    ("engram_head_dim .*multiple of 32", {"engram_head_dim": 40}),
    ("num_attention_heads .*not a multiple of o_groups = 7", {"o_groups": 7}),
    ("qk_rope_head_dim .*must be even", {"rope_head_dim": 63}),
    ("qk_rope_head_dim .*more than index_head_dim", {"rope_head_dim": 256}),
    ("num_experts_per_tok .*more than n_routed_experts", {"n_activated_experts": 385}),
    ("dspark_num_experts_per_tok .*more than dspark_n_routed_experts", {"dspark_n_activated_experts": 129}),
    ("index_topk .*could not fill", {"index_topk": 16385}),
    ("beta_slow .*more than beta_fast", {"beta_slow": 33}),
    ("rope_factor .*at least 1", {"rope_factor": 0.5}),
    ("n_routed_experts .*is more than 1000000", {"n_routed_experts": 10**6}),
    ("num_hidden_layers .*is more than", {"n_layers": 10**9}),
    ("scoring_func .score_func in inference/config.json. = 'softmax'", {"score_func": "softmax"}),
    ("norm_topk_prob = False", {"norm_topk_prob": False}),
    ("gate_temp = 0.5", {"gate_temp": 0.5}),
    ("n_shared_experts = 2", {"n_shared_experts": 2}),
    ("hc_mult = 2", {"hc_mult": 2}),
    ("dtype = 'bf16'", {"dtype": "bf16"}),
    ("expert_dtype = 'fp8'", {"expert_dtype": "fp8"}),
    ("sliding_window .*must be positive", {"window_size": 0}),
    ("rms_norm_eps .*must be positive", {"norm_eps": 0}),
]


@pytest.mark.parametrize(
    ("message", "keys"), CONTRADICTIONS, ids=[f"{i}-{next(iter(k))}" for i, (_, k) in enumerate(CONTRADICTIONS)]
)
def test_contradictions_are_named(message: str, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_flat(flat(**keys))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("num_key_value_heads", 8),
        ("num_key_value_heads", True),
        ("attention_bias", 0),
        ("attention_bias", True),
        ("topk_method", "greedy"),
        ("tie_word_embeddings", True),
        ("num_hash_layers", 3),
        ("first_k_dense_replace", 1),
        ("norm_topk_prob", False),
        ("max_position_embeddings", 0),
        ("image_token_id", 5),
    ],
)
def test_what_the_text_config_may_not_say(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        ModelConfig.from_hf(hf(**{key: value}))


def test_several_ids_may_end_a_reply() -> None:
    config = ModelConfig.from_hf({**hf(), "eos_token_id": [1, 128804]})
    assert (config.eos_token_id, config.eos_token_ids) == ((1, 128804), (1, 128804))
    one, plain = ModelConfig.from_hf({**hf(), "eos_token_id": [1]}), ModelConfig.from_hf(HF)
    assert one == plain and repr(one) == repr(plain) and plain.eos_token_ids == (1,)  # the same identity of checkpoints


@pytest.mark.parametrize(
    "found", [[], [1, 1], [1, True], True, "1", [1, "2"], [1.0], 1.0, None, [[1]], [1, -1], [1, 129280]]
)
def test_what_ends_a_reply_is_an_id_or_different_ids(found: Any) -> None:
    with pytest.raises(ConfigError, match="eos_token_id"):
        ModelConfig.from_hf({**hf(), "eos_token_id": found})


def test_other_architectures_are_refused() -> None:
    with pytest.raises(ConfigError, match="architectures"):
        ModelConfig.from_hf({**hf(), "architectures": ["DeepseekV4ForCausalLM"]})


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("route_scale", 2.5, "routed_scaling_factor"),
        ("dim", 4096, "hidden_size"),
        ("norm_eps", 1e-6, "rms_norm_eps"),
        ("index_topk", 256, "index_topk"),
        ("engram_pad_id", 3, "engram_pad_token_id"),
        ("rope_factor", 8, "rope_factor"),
        ("image_token_id", 7, "image_token_id"),
    ],
)
def test_two_files_that_disagree_are_refused_by_key(tmp_path: Path, key: str, value: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json says {name} = .*inference/config\.json says {key} = "):
        ModelConfig.from_folder(folder(tmp_path, HF, flat(**{key: value})))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object"),
        ("[" * 100000, "not valid JSON"),
        ("\xff", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_plain_json_object_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        ModelConfig.from_folder(tmp_path)


def test_a_fault_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"inference/config\.json: head_dim = 'x', expected an integer"):
        ModelConfig.from_folder(folder(tmp_path, flat_config=flat(head_dim="x")))


def test_parts_that_are_not_there_need_no_keys() -> None:
    config = flat(engram_layer_ids=[], n_mtp_layers=0, compress_ratios=FLAT["compress_ratios"][:40])
    config = {k: v for k, v in config.items() if k == "engram_layer_ids" or not k.startswith(("engram_", "dspark_"))}
    model = ModelConfig.from_flat(config)
    assert (model.engram_num_embeddings, model.dspark_target_layer_ids, model.dspark_block_size) == ((), (), 0)
    assert all(r.tap is None and r.engram is None for r in model.roles)


def test_a_built_config_is_checked_as_well() -> None:
    model = ModelConfig.from_flat(FLAT)
    assert dataclasses.replace(model, sliding_window=64).sliding_window == 64
    with pytest.raises(ConfigError, match="sliding_window"):
        dataclasses.replace(model, sliding_window=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.sliding_window = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "where, value",
    [
        ("n_group", 8), ("topk_group", 4), ("use_qk_norm", True), ("final_logit_softcapping", 30.0),
        ("rope_interleave", False), ("rope_scaling.attention_factor", 1.2), ("rope_scaling.mscale", 0.7),
        ("quantization_config.fmt", "e5m2"), ("quantization_config.modules_to_not_convert", ["head"]),
    ],
)  # fmt: skip
def test_what_would_change_the_mathematics_is_refused(where: str, value: object) -> None:
    config = copy.deepcopy(HF)
    where = where if where.startswith("quantization_config.") else f"text_config.{where}"
    *parents, key = where.split(".")
    holder = config
    for parent in parents:
        holder = holder[parent]
    holder[key] = value
    with pytest.raises(ConfigError, match=f"{where} = .* would change what is computed"):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize("key, value", [("n_expert_groups", 8), ("use_qk_norm", True), ("mscale", 0.7)])
def test_so_it_is_in_the_flat_file(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} = .* would change what is computed"):
        ModelConfig.from_flat(flat(**{key: value}))


def test_its_neutral_value_and_what_only_trains_or_names_pass_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    config = copy.deepcopy(HF)
    config |= {"transformers_version": "5", "torch_dtype": "bfloat16", "auto_map": {}}
    config["text_config"]["torch_dtype"] = "bfloat16"
    config["text_config"] |= {"n_group": 1, "topk_group": None, "use_qk_norm": False, "aux_loss_alpha": 0.001}
    config["text_config"]["rope_scaling"] |= {"attention_factor": 1.0, "mscale": 1}
    config["quantization_config"]["fmt"] = "e4m3"
    assert ModelConfig.from_hf(config) == ModelConfig.from_hf(HF) and not recwarn.list
    serving = {"max_batch_size": 4, "max_seq_len": 4096, "n_expert_groups": 1, "vision_depth": 27}
    assert ModelConfig.from_flat(flat(**serving)) == ModelConfig.from_flat(FLAT) and not recwarn.list


def test_unknown_keys_are_warned_of_by_name() -> None:
    config = copy.deepcopy(HF)
    config["text_config"]["mystery"], config["riddle"] = 3, 4
    with pytest.warns(UserWarning, match="does not know: riddle, text_config.mystery"):
        assert ModelConfig.from_hf(config) == ModelConfig.from_hf(HF)
    with pytest.warns(UserWarning, match="does not know: mystery"):
        assert ModelConfig.from_flat(flat(mystery=3)) == ModelConfig.from_flat(FLAT)
