"""Writes random checkpoints in the published layout, with numpy alone, for tests and benchmarks.

Knows the layout and the statistics of weights, not how the network uses them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tensorfold.checkpoint.inventory import Tensors, TensorSpec, tensor_groups
from tensorfold.checkpoint.layout import INDEX_FILE, SINGLE_FILE
from tensorfold.config import FLAT_FILE, HF_FILE, ModelConfig
from tensorfold.network.engram_hash import engram_primes
from tensorfold.testing.random_weights import RandomWeights
from tensorfold.testing.synthetic_config import flat_config, hf_config
from tensorfold.testing.synthetic_tokenizer import train_tokenizer, write_tokenizer
from tensorfold.text.token_map import compressed_ids

__all__ = ["add_image_router", "write", "write_shard"]


def write(
    folder: str | Path,
    config: str | Mapping[str, Any] = "tiny",
    seed: int = 0,
    *,
    engram: bool = True,
    drafter: bool = True,
    single_file: bool = False,
    index: bool = True,
    image_router: bool = True,
    gain: float = 1.0,
    **overrides: Any,
) -> ModelConfig:
    """Write a random checkpoint into `folder` and return its config.

    config: a preset ("tiny": every structural feature, small; "heads": the real head sizes, narrow; "mid": hidden 2048,
    4 layers, no Engram; "published": 510 GB, to be cut by overrides) or keys of inference/config.json laid over "tiny".
    `overrides` are such keys too. Engram table sizes and the compressed vocabulary are computed, so they cannot be
    given.
    engram, drafter: False leaves that part out of config and weights. single_file: one model.safetensors without an
    index; index=False leaves the index of numbered shards out. image_router: whether bias_vl tensors are there.
    gain scales wo_b and w2: below 1 the residual stream is calmer. Equal arguments write equal bytes.
    Raises ConfigError for a config that contradicts itself, ValueError for an unknown preset or key.
    """
    path = Path(folder)
    flat = flat_config(config, engram, drafter, overrides)
    tokenizer = train_tokenizer(flat["vocab_size"])
    if flat["engram_layer_ids"]:
        _fill_engram(flat, tokenizer)
    model = ModelConfig.from_flat(flat)
    (path / FLAT_FILE).parent.mkdir(parents=True, exist_ok=True)
    _dump(path / FLAT_FILE, flat)
    _dump(path / HF_FILE, hf_config(flat))
    write_tokenizer(path, tokenizer, model.max_position_embeddings)
    groups = tensor_groups(model)
    if image_router:
        add_image_router(groups)
    if single_file:
        groups = {"all": {name: spec for group in groups.values() for name, spec in group.items()}}
    weights = RandomWeights(model, seed, gain)
    weight_map: dict[str, str] = {}
    for i, group in enumerate(groups.values(), 1):
        file = SINGLE_FILE if single_file else f"model-{i:05d}-of-{len(groups):05d}.safetensors"
        write_shard(path / file, group, weights)
        weight_map.update(dict.fromkeys(group, file))
    if index and not single_file:
        total = sum(spec.nbytes for group in groups.values() for spec in group.values())
        _dump(path / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})
    return model


def write_shard(
    path: Path, tensors: Tensors, weights: RandomWeights | None, drawn: Callable[[str], bool] | None = None
) -> None:
    """One safetensors file with `tensors` in their order, drawn one after another.

    drawn: which tensors have bytes, by name; the others are holes that read as zeros and take no room on disk where
    the file system allows. Without `weights` all are holes.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, spec in tensors.items():
        start, end = end, end + spec.nbytes
        header[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for name, spec in tensors.items():
            if weights is None or (drawn is not None and not drawn(name)):
                file.seek(spec.nbytes, os.SEEK_CUR)
            else:
                file.write(weights.draw(name, spec).data)
        file.truncate()


def _fill_engram(flat: dict[str, Any], tokenizer: Tokenizer) -> None:
    """The numbers that follow from the tokenizer and the hash rule."""
    layers = len(flat["engram_layer_ids"])
    orders = flat["engram_max_ngram_size"] - 1
    primes = engram_primes(layers, orders, flat["engram_n_heads"], flat["engram_vocab_size"])
    flat["engram_num_embeddings"] = [int(rows) for rows in primes.reshape(layers, -1).sum(axis=1)]
    flat["engram_compressed_vocab_size"] = 1 + max(compressed_ids(tokenizer, tokenizer.get_vocab_size()))


def add_image_router(groups: dict[str, Tensors]) -> None:
    """The bias_vl of every router, which a published checkpoint has and the text model skips."""
    for name, group in groups.items():
        bias = group.get(f"{name}.ffn.gate.bias")
        if bias is not None:
            group[f"{name}.ffn.gate.bias_vl"] = TensorSpec("F32", bias.shape)


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
