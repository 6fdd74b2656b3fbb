"""Compares what shards hold with what the config and the index ask for; reads headers alone, knows no mapping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensorfold.checkpoint.errors import CheckpointError, listing, show
from tensorfold.checkpoint.headers import Entry, ShardHeader
from tensorfold.checkpoint.inventory import Tensors, is_skipped

Found = dict[str, tuple[int, Entry]]
WHY = {
    "F8_E4M3": " (quantization_config.quant_method is fp8)",
    "I8": " (quantization_config.expert_dtype is fp4)",
    "F8_E8M0": " (quantization_config.scale_fmt is ue8m0)",
}


def merge(headers: Sequence[ShardHeader]) -> Found:
    """All tensors of all shards by name, with the shard's place in `headers`; a name in two shards is refused."""
    found: Found = {}
    for i, header in enumerate(headers):
        before = len(found)
        found.update((name, (i, entry)) for name, entry in header.entries.items())
        if len(found) != before + len(header.entries):
            raise _twice(headers[: i + 1])
    return found


def check_index(folder: Path, weight_map: dict[str, str], headers: Sequence[ShardHeader], found: Found) -> None:
    """The index and the shards must name the same tensors in the same files; absent shards are judged elsewhere."""
    files = [header.path.name for header in headers]
    faults = []
    for name, (i, _) in found.items():
        if weight_map.get(name) != files[i]:
            faults.append(f"{show(name)} lies in {files[i]}, the index says {weight_map.get(name, 'nothing')}")
    present = set(files)
    for name, file in weight_map.items():
        if name not in found and file in present:
            faults.append(f"{show(name)} is not in {file}, where the index puts it")
    if faults:
        raise CheckpointError(f"{folder}: index and shards contradict: {listing(faults)}")


def check_tensors(folder: Path, expected: Tensors, headers: Sequence[ShardHeader], found: Found, drafter: bool) -> None:
    """Every expected tensor with its dtype and shape, and none that is unknown; lists all faults at once."""
    wrong, missing = [], []
    for name, spec in expected.items():
        at = found.get(name)
        if at is None:
            missing.append(name)
        elif at[1].dtype != spec.dtype or at[1].shape != spec.shape:
            wrong.append(_mismatch(name, spec.dtype, spec.shape, at[1], headers[at[0]].path.name))
    stray = [
        f"{show(name)} ({headers[i].path.name})"
        for name, (i, _) in found.items()
        if name not in expected and not is_skipped(name) and (drafter or not name.startswith("mtp."))
    ]
    parts = []
    if missing:
        parts.append(f"{len(missing)} tensors missing: {listing(_missing(missing, expected, found))}; "
                     f"incomplete download?{_drafter_hint(missing)}")  # fmt: skip
    if wrong:
        parts.append(f"{len(wrong)} tensors differ from the config: {listing(wrong)}")
    if stray:
        parts.append(f"{len(stray)} unknown tensors: {listing(stray)}")
    if parts:
        raise CheckpointError(f"{folder}: " + "\n".join(parts))


def _mismatch(name: str, dtype: str, shape: tuple[int, ...], entry: Entry, file: str) -> str:
    if entry.dtype != dtype:
        return f"{name} in {file}: expected dtype {dtype}{WHY.get(dtype, '')}, found {entry.dtype}"
    kind = "scale of shape" if name.endswith(".scale") else "shape"
    return f"{name} in {file}: expected {kind} {list(shape)}, found {show(list(entry.shape))}"


def _missing(missing: list[str], expected: Tensors, found: Found) -> list[str]:
    """Scales whose weight is there come first and say so: such a weight must not be taken for plain numbers."""
    orphans, plain = [], []
    for name in missing:
        weight = name.removesuffix("scale") + "weight"
        if name.endswith(".scale") and weight in found:
            orphans.append(f"{name} (without it {weight} {expected[weight].dtype} means nothing)")
        else:
            plain.append(name)
    return orphans + plain


def _drafter_hint(missing: list[str]) -> str:
    if all(name.startswith("mtp.") for name in missing):
        return " All belong to the drafter: open with drafter=False to do without it."
    return ""


def _twice(headers: Sequence[ShardHeader]) -> CheckpointError:
    last = headers[-1]
    for header in headers[:-1]:
        for name in header.entries.keys() & last.entries.keys():
            return CheckpointError(f"{last.path}: tensor {show(name)} is also in {header.path.name}")
    return CheckpointError(f"{last.path}: a tensor is given twice")
