"""Which files of a folder are the checkpoint: by its index, or by the published file names; reads no shard."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorfold.checkpoint.errors import CheckpointError, listing, show

LOG = logging.getLogger("tensorfold.load")
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
POINTER, LARGEST_POINTER = b"version https://git-lfs", 1024
PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*\.safetensors", re.ASCII)
NUMBERED = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


def find_shards(folder: Path, wanted: Callable[[str], bool]) -> tuple[list[Path], dict[str, str] | None]:
    """The shards to open, in order of name, and the index's map of tensor to file (None without an index).

    A shard that the index names may be absent if it holds no `wanted` tensor. Raises CheckpointError naming what is
    absent or cannot be told.
    """
    if (folder / INDEX_FILE).exists():
        index = read_index(folder / INDEX_FILE)
        _tell_unread(folder, set(index.values()), INDEX_FILE)
        return _by_index(folder, index, wanted), index
    single = folder / SINGLE_FILE
    names = sorted(p.name for p in folder.iterdir() if NUMBERED.fullmatch(p.name))
    if single.exists() and names:
        raise CheckpointError(f"{folder}: both {SINGLE_FILE} and {names[0]}, and no {INDEX_FILE} to say which counts")
    if single.exists():
        _tell_unread(folder, {SINGLE_FILE}, "its name")
        return [single], None
    if not names:
        others = sorted(p.name for p in folder.glob("*.safetensors"))
        hint = f"; {listing(others)} has a name that no checkpoint is published under" if others else ""
        raise CheckpointError(f"{folder}: no {INDEX_FILE}, no {SINGLE_FILE} and no model-00001-of-*.safetensors{hint}")
    totals = {NUMBERED.sub(r"\2", name) for name in names}
    if len(totals) > 1:
        raise CheckpointError(f"{folder}: shards of several checkpoints ({listing(names)}) and no {INDEX_FILE}")
    total = totals.pop()
    expected = [f"model-{i:05d}-of-{total}.safetensors" for i in range(1, int(total) + 1)]
    absent = sorted(set(expected) - set(names))
    if absent:
        raise CheckpointError(f"{folder}: {len(absent)} of {total} shards absent: {listing(absent)}; "
                              "incomplete download?")  # fmt: skip
    if names != expected:
        raise CheckpointError(f"{folder}: {listing(sorted(set(names) - set(expected)))} is outside 1..{total}")
    _tell_unread(folder, set(names), "its name")
    return [folder / name for name in names], None


def _tell_unread(folder: Path, shards: set[str], why: str) -> None:
    others = sorted({p.name for p in folder.glob("*.safetensors")} - shards)
    if others:
        LOG.warning("%s: %s: not read, no part of the checkpoint by %s", folder, listing(others), why)


def refuse_pointers(folder: Path) -> None:
    """Raises CheckpointError where files are what git-lfs leaves in the place of those that it did not fetch."""
    kinds = "*.safetensors", "*.json", "*.model", "inference/*.json"
    files = (p for kind in kinds for p in sorted(folder.glob(kind)) if p.is_file())
    small = (p for p in files if p.stat().st_size <= LARGEST_POINTER)
    found = [str(p.relative_to(folder)) for p in small if p.read_bytes().startswith(POINTER)]
    if found:
        raise CheckpointError(
            f"{folder}: {len(found)} files are git-lfs pointers, not the files themselves: {listing(found)}; "
            "run `git lfs pull` in that folder"
        )


def read_index(path: Path) -> dict[str, str]:
    """The weight_map of an index file, checked: tensor names to plain file names of its own folder."""
    try:
        index = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a valid index ({show(str(error))})") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map is {show(weight_map)}, expected tensor names with their files")
    files: set[str] = set()
    for name, file in weight_map.items():
        if type(file) is not str:
            raise CheckpointError(f"{path}: tensor {show(name)} has file {show(file)}, expected a file name")
        files.add(file)
    for file in files:
        if PLAIN.fullmatch(file) is None:
            raise CheckpointError(f"{path}: names the file {show(file)}, expected a .safetensors file of this folder")
    return weight_map


def wanted_files(weight_map: dict[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    """The files that hold at least one wanted tensor, each with one such tensor's name."""
    files: dict[str, str] = {}
    for name, file in weight_map.items():
        if file not in files and wanted(name):
            files[file] = name
    return files


def _by_index(folder: Path, weight_map: dict[str, str], wanted: Callable[[str], bool]) -> list[Path]:
    needed = wanted_files(weight_map, wanted)
    absent = [f"{file} (holds {name})" for file, name in sorted(needed.items()) if not (folder / file).exists()]
    if absent:
        raise CheckpointError(
            f"{folder}: {len(absent)} of {len(needed)} shards named by {INDEX_FILE} absent: {listing(absent)}; "
            "incomplete download?"
        )
    return [folder / file for file in sorted(set(weight_map.values())) if (folder / file).exists()]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{show(name)} is given twice")
            seen.add(name)
    return found
