"""Takes shards apart and writes them back with planted faults; tests only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
SMALL: dict[str, Any] = {"n_routed_experts": 4, "dspark_n_routed_experts": 3, "vocab_size": 320, "dim": 128}
Tensors = dict[str, tuple[str, list[int], bytes]]


def clone(source: Path, target: Path) -> Path:
    """A copy that shares its files until one is replaced; every helper here replaces, none writes in place."""
    shutil.copytree(source, target, copy_function=os.link)
    return target


def replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def pack(header: Any, payload: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + payload


def rewrite(path: Path, edit: Callable[[Tensors], object]) -> None:
    """Change the tensors of a shard; offsets follow, so the file stays well formed."""
    header, payload = header_of(path)
    header.pop("__metadata__", None)
    tensors: Tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], payload[start:end])
    edit(tensors)
    out: dict[str, Any] = {}
    blob = b""
    for name, (dtype, shape, data) in tensors.items():
        out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    replace(path, pack(out, blob))


def edit_index(folder: Path, edit: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    replace(folder / INDEX, json.dumps(index).encode())


def shard_of(folder: Path, name: str) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]
