"""ModelConfig: every number the network is built from, read strictly; knows no tensors and no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorfold import config_rules as rules
from tensorfold.config_keys import parts_of_flat, parts_of_hf, strange
from tensorfold.config_rules import ConfigError
from tensorfold.roles import RoleTable, build_roles

__all__ = ["FLAT_FILE", "HF_FILE", "ConfigError", "ModelConfig"]

HF_FILE = "config.json"
FLAT_FILE = "inference/config.json"


def _key(flat: str | None = "", hf: str = "", part: str = "", optional: bool = False, **kw: Any) -> Any:
    """A field read from `flat` ("" = same name, None = not in that file) and from `hf` (a dotted path)."""
    return field(metadata={"flat": flat, "hf": hf, "part": part, "optional": optional}, **kw)


def _mixed(flat: str = "") -> Any:
    return _key(flat, part="engram")


def _drafter(flat: str = "") -> Any:
    return _key(flat, part="drafter")


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and constants of a DeepSeek-V4.1 text model (docs/model.md#config).

    Attributes carry the Hugging Face names. Both published files give equal objects; `max_position_embeddings` is not
    compared, because the flat file lacks it (there it is original_max_position_embeddings * rope_factor). Without
    Engram layers (engram_layer_ids empty) the other engram_* keys may be absent and are then 0 or empty; without
    drafter stages (num_nextn_predict_layers 0) the same holds for dspark_* keys.
    Raises ConfigError (a ValueError) naming key and value for anything missing, mistyped, non-finite or contradictory.
    """

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
    eos_token_id: int = _key(None, hf="/eos_token_id", optional=True, default=1)
    pad_token_id: int = _key(None, hf="/pad_token_id", optional=True, default=2)
    max_position_embeddings: int = _key(None, default=None, compare=False)

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.compare:
                object.__setattr__(self, f.name, rules.typed(f.name, getattr(self, f.name), _kind(f)))
        context: Any = self.max_position_embeddings
        if context is None:
            context = min(int(self.original_max_position_embeddings * max(1.0, self.rope_factor)), rules.LARGEST)
        object.__setattr__(self, "max_position_embeddings", rules.typed("max_position_embeddings", context, "int"))
        rules.check(self)

    @property
    def engram_history(self) -> int:
        """How many ids before a token its Engram rows depend on: the n-gram size less one, 0 without Engram."""
        return max(0, self.engram_max_ngram_size - 1) if self.engram_layer_ids else 0

    @cached_property
    def roles(self) -> RoleTable:
        """The role of each target layer, a tuple of LayerRole that prints as a table."""
        return build_roles(
            self.compress_ratios[: self.num_hidden_layers],
            self.kv_source_layer_ids,
            self.index_source_layer_ids,
            self.candidate_source_layer_id,
            self.engram_layer_ids,
            self.dspark_target_layer_ids,
        )

    @classmethod
    def from_folder(cls, path: str | Path) -> ModelConfig:
        """The config of a checkpoint folder: config.json, or inference/config.json; if both are there they must agree.

        Raises FileNotFoundError if neither file is there, ConfigError (a ValueError) naming file, key and value.
        """
        folder = Path(path)
        hf, flat = folder / HF_FILE, folder / FLAT_FILE
        if not hf.is_file() and not flat.is_file():
            raise FileNotFoundError(f"{folder}: neither {HF_FILE} nor {FLAT_FILE} is there, so this is no checkpoint")
        if not flat.is_file():
            return _named(hf, cls.from_hf, read_json(hf))
        source = read_json(flat)
        second = _named(flat, cls.from_flat, source)
        if not hf.is_file():
            return second
        first = _named(hf, cls.from_hf, read_json(hf))
        for f in fields(cls):
            name = f.metadata["flat"] or f.name
            if f.metadata["flat"] is None or name not in source:
                continue
            a, b = getattr(first, f.name), getattr(second, f.name)
            if a != b:
                raise ConfigError(
                    f"{folder}: {HF_FILE} says {f.name} = {_plain(a)}, {FLAT_FILE} says {name} = {_plain(b)}; "
                    "the two must agree"
                )
        return first

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """From the parsed Hugging Face config.json (model_type deepseek_v41 with a text_config).

        Keys that cannot change the text network (vision_config, initializer_range, use_cache, dtype and the like) are
        left alone; a key that contradicts what this library computes is refused, one that nobody knows is warned of.
        """
        text = rules.check_hf(config)
        fault = strange(parts_of_hf(config, {(f.metadata["hf"] or f.name).split(".")[0] for f in fields(cls)}))
        if fault is not None:
            raise ConfigError(fault)
        values: dict[str, Any] = {}
        for f in fields(cls):
            path = f.metadata["hf"] or f.name
            top = path.startswith("/")
            where = path[1:] if top else f"text_config.{path}"
            holder: Any = config if top else text
            *parents, leaf = path.lstrip("/").split(".")
            for parent in parents:
                holder = holder[parent]
            if top and leaf in text and leaf in holder and text[leaf] != holder[leaf]:
                raise ConfigError(f"{leaf} = {holder[leaf]!r} and text_config.{leaf} = {text[leaf]!r} contradict")
            if top and leaf not in holder:
                holder, where = text, f"{where} (or text_config.{leaf})"
            _take(values, f, holder, leaf, where)
        return cls(**values)

    @classmethod
    def from_flat(cls, config: Mapping[str, Any]) -> ModelConfig:
        """From the parsed inference/config.json (flat names, such as dim and n_layers); other keys as in `from_hf`."""
        rules.check_flat(config)
        fault = strange(parts_of_flat(config, {f.metadata["flat"] or f.name for f in fields(cls)}))
        if fault is not None:
            raise ConfigError(fault)
        values: dict[str, Any] = {}
        for f in fields(cls):
            if f.metadata["flat"] is not None:
                name = f.metadata["flat"] or f.name
                _take(values, f, config, name, name)
        return cls(**values)


def _take(values: dict[str, Any], f: Field[Any], holder: Mapping[str, Any], leaf: str, where: str) -> None:
    """Put one key into `values`, typed; an absent part of the model is zero or empty, an absent option its default."""
    if leaf in holder:
        values[f.name] = rules.typed(where, holder[leaf], _kind(f))
        return
    part = f.metadata["part"]
    absent = {"engram": not values.get("engram_layer_ids"), "drafter": values.get("num_nextn_predict_layers") == 0}
    if part and absent[part]:
        values[f.name] = () if _kind(f) == "tuple[int, ...]" else 0
    elif not f.metadata["optional"] and (f.default is MISSING or leaf == "max_position_embeddings"):
        raise ConfigError(f"{where} is missing")


def _kind(f: Field[Any]) -> str:
    return str(f.type)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _named(path: Path, build: Callable[[Mapping[str, Any]], ModelConfig], source: Mapping[str, Any]) -> ModelConfig:
    """Prefix a config error with the file it came from."""
    try:
        return build(source)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object without duplicate keys, else ConfigError naming the file."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_unique)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"key {next(n for n in names if names.count(n) > 1)!r} is given twice")
    return found
