"""Writes a checkpoint of the published size: its config, its 48 shards, every tensor's name, shape and dtype.

Headers are real and payloads are holes that take no room, but for the layers asked for, which are random and valid.
What it writes opens and is described; it has no tokenizer, and nobody has the memory for it. With --cut the config has
only these layers, so that it can be loaded and run: real layers, fewer of them, a small vocabulary.
Names of the image side are stand-ins. Nothing that this writes belongs into a repository.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tensorfold.checkpoint.inventory import Tensors, TensorSpec, tensor_groups
from tensorfold.checkpoint.layout import INDEX_FILE
from tensorfold.config import FLAT_FILE, HF_FILE, ModelConfig
from tensorfold.network.engram_hash import engram_primes
from tensorfold.testing import synthetic
from tensorfold.testing.random_weights import RandomWeights
from tensorfold.testing.synthetic_config import flat_config, hf_config

COMPRESSED_VOCAB = 99_092  # of the published tokenizer
IMAGE_TENSORS, IMAGE_MARKS = 263, ("image_start", "image_end", "image_newline")
SMALL_VOCAB = 4096
FEWEST = 4  # layers that hold one of every kind


def published_config() -> dict[str, Any]:
    """inference/config.json as published."""
    flat = flat_config("published", True, True, {})
    primes = engram_primes(len(flat["engram_layer_ids"]), flat["engram_max_ngram_size"] - 1, flat["engram_n_heads"],
                           flat["engram_vocab_size"])  # fmt: skip
    rows = [int(n) for n in primes.reshape(len(primes), -1).sum(axis=1)]
    return {**flat, "engram_num_embeddings": rows, "engram_compressed_vocab_size": COMPRESSED_VOCAB}


def shards(config: ModelConfig) -> list[Tensors]:
    """The published division: image side, embedding, a shard a layer, head, drafter stages, Engram tables."""
    groups = tensor_groups(config)
    synthetic.add_image_router(groups)
    groups["embed"].update(dict.fromkeys(IMAGE_MARKS, TensorSpec("BF16", (config.hidden_size,))))
    return [{f"vision.stand_in.{i}": TensorSpec("BF16", (1,)) for i in range(IMAGE_TENSORS)}, *groups.values()]


def chosen(parts: list[Tensors], layers: int, most: float) -> Iterator[str]:
    """Names of the tensors of the first layers, as far as `most` bytes reach; Engram tables are left to be holes."""
    for tensors in parts:
        for name, spec in tensors.items():
            head, _, rest = name.partition(".")
            if head == "layers" and int(rest.split(".")[0]) < layers and ".engram.embed." not in name:
                most -= spec.nbytes
                if most < 0:
                    return
                yield name


def write(folder: Path, layers: int = 0, gigabytes: float = float("inf"), seed: int = 0) -> ModelConfig:
    """The whole layout; the first `layers` layers have bytes, up to so many gigabytes (10^9 bytes)."""
    flat = published_config()
    config = ModelConfig.from_flat(flat)
    (folder / FLAT_FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / FLAT_FILE).write_text(json.dumps(flat, indent=1))
    (folder / HF_FILE).write_text(json.dumps(hf_config(flat), indent=1))
    parts = shards(config)
    drawn = set(chosen(parts, layers, gigabytes * 1e9))
    weights = RandomWeights(config, seed) if drawn else None
    weight_map: dict[str, str] = {}
    for i, tensors in enumerate(parts, 1):
        file = f"model-{i:05d}-of-{len(parts):05d}.safetensors"
        synthetic.write_shard(folder / file, tensors, weights, drawn.__contains__)
        weight_map.update(dict.fromkeys(tensors, file))
    total = sum(spec.nbytes for tensors in parts for spec in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=1))
    return config


def write_cut(folder: Path, layers: int, experts: int, engram_vocab: int, seed: int = 0) -> ModelConfig:
    """Real layers, so few that they can be loaded: window, ratio 2, ratio 1 and readers, Engram, the drafter."""
    layers = max(layers, FEWEST)
    overrides = {
        "n_layers": layers, "compress_ratios": [0, 0, 2, *[1] * (layers - 3), 0, 0, 0], "kv_source_layers": [2, 3],
        "index_source_layers": [2, 3], "candidate_source_layer": 3, "engram_layer_ids": [1],
        "dspark_target_layer_ids": [layers - 3, layers - 2, layers - 1], "n_routed_experts": experts,
        "dspark_n_routed_experts": min(experts, 128), "vocab_size": SMALL_VOCAB, "engram_vocab_size": engram_vocab,
        "dspark_noise_token_id": SMALL_VOCAB - 2, "image_token_id": SMALL_VOCAB - 1,
    }  # fmt: skip
    return synthetic.write(folder, "published", seed, **overrides)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write; must not exist")
    parser.add_argument("--layers", type=int, default=0, help="layers that have bytes, from the first on")
    parser.add_argument("--gb", type=float, default=float("inf"), help="most gigabytes of bytes to write")
    parser.add_argument("--cut", action="store_true", help=f"a config of --layers layers alone, at least {FEWEST}")
    parser.add_argument("--experts", type=int, default=384, help="with --cut: routed experts a layer")
    parser.add_argument("--engram-vocab", type=int, default=100_000, help="with --cut: rows of each hash table, about")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.folder.exists():
        parser.error(f"{args.folder} is there already")
    args.folder.mkdir(parents=True)
    if args.cut:
        config = write_cut(args.folder, args.layers, args.experts, args.engram_vocab, args.seed)
    else:
        room = 0.9 * shutil.disk_usage(args.folder).free / 1e9
        config = write(args.folder, args.layers, min(args.gb, room), args.seed)
    files = list(args.folder.glob("*.safetensors"))
    length, taken = sum(p.stat().st_size for p in files), sum(512 * p.stat().st_blocks for p in files)
    about = f"{config.num_hidden_layers} layers in {len(files)} shards"
    print(f"{about}: {length / 1e9:.1f} GB, on disk {taken / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
