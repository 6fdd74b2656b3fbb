"""ModelConfig: every number the network is built from, read strictly; knows no tensors and no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorfold import config_rules as rules
from tensorfold.cone import Cone
from tensorfold.config_fields import ConfigFields
from tensorfold.config_keys import parts_of_flat, parts_of_hf, strange
from tensorfold.config_rules import ConfigError
from tensorfold.roles import RoleTable, build_roles

__all__ = ["FLAT_FILE", "HF_FILE", "ConfigError", "ModelConfig"]

HF_FILE = "config.json"
FLAT_FILE = "inference/config.json"


@dataclass(frozen=True)
class ModelConfig(ConfigFields):
    """Shapes and constants of a DeepSeek-V4.1 text model (docs/model.md#config).

    Attributes carry the Hugging Face names. Both published files give equal objects; `max_position_embeddings` is not
    compared, because the flat file lacks it (there it is original_max_position_embeddings * rope_factor). Without
    Engram layers (engram_layer_ids empty) the other engram_* keys may be absent and are then 0 or empty; without
    drafter stages (num_nextn_predict_layers 0) the same holds for dspark_* keys.
    Raises ConfigError (a ValueError) naming key and value for anything missing, mistyped, non-finite or contradictory.
    """

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

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Every id that ends a reply; eos_token_id is one of them alone, or all of them, as the config has it."""
        return (self.eos_token_id,) if isinstance(self.eos_token_id, int) else self.eos_token_id

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

    @cached_property
    def cone(self) -> Cone:
        """Which layers the rows of a prompt run."""
        return Cone.of(self.roles, self.sliding_window)

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
