"""What a checkpoint folder holds and needs, from its config and headers alone; loads no weight and starts no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorfold.backend.layout import RowKind
from tensorfold.checkpoint.inventory import expected_tensors, is_drafter
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.config import ModelConfig
from tensorfold.state.caches import PAGE_TOKENS

GIB = 2**30
COPIED, MAPPED, DISK = "copied", "mapped", "disk"
_TABLES, ROUTED = "Engram tables", "routed experts"
SIZES = (16, 32, 64, 96, 128, 192, 256, 384, 512)  # GiB
_USABLE = 0.75  # share of a machine's memory that is counted on; the rest is for the system and for work in progress
_DTYPES = {"F8_E4M3": "FP8 codes", "I8": "FP4 codes", "F8_E8M0": "block scales", "BF16": "bfloat16", "F32": "float32"}
_PARTS = (
    (".engram.embed.", _TABLES), (".engram.", "Engram projections"), (".ffn.experts.", ROUTED),
    (".ffn.shared_experts.", "shared experts"), (".ffn.gate.", "routers"), (".compressor.", "compressors"),
    (".indexer.", "indexers"), (".attn.", "attention"), (".hc_", "hyper-connections"),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Tensors of one kind. nbytes: as stored. held: "copied" out of the file, "mapped" (used where they lie in it,
    which makes them resident) or "disk" (rows are read as tokens ask). why: the reason, in words."""

    name: str
    tensors: int
    nbytes: int
    held: str = ""
    why: str = ""


@dataclass(frozen=True)
class Description:
    """A checkpoint at a glance; `str()` of it is a table.

    config: with `config.roles`, a line a layer. parts, formats: its text tensors by what they do and by how they are
    stored; how a part is held is what this device and the file allow, and a backend may copy more.
    slot_bytes: caches of an open slot before its first token. page_bytes: caches of each further 128 tokens of it.
    """

    path: Path
    config: ModelConfig
    drafter: bool
    parts: tuple[Kind, ...]
    formats: tuple[Kind, ...]
    slot_bytes: int
    page_bytes: int

    @property
    def resident_bytes(self) -> int:
        """Weights that are in memory, copied or mapped."""
        return self.copied_bytes + self.mapped_bytes

    @property
    def copied_bytes(self) -> int:
        """Weights that are copied out of the file."""
        return self._held(COPIED)

    @property
    def mapped_bytes(self) -> int:
        """Weights that can be used where they lie in the mapped file."""
        return self._held(MAPPED)

    @property
    def disk_bytes(self) -> int:
        """Weights that stay in the file: rows are read when a token asks for them."""
        return self._held(DISK)

    @property
    def routed_bytes(self) -> int:
        """Routed experts of the target's layers, which can be streamed."""
        return sum(kind.nbytes for kind in self.parts if kind.name == ROUTED)

    @property
    def routed_experts(self) -> int:
        """How many there are in all layers."""
        return self.config.num_hidden_layers * self.config.n_routed_experts

    @property
    def expert_bytes(self) -> int:
        """One routed expert as stored."""
        return self.routed_bytes // self.routed_experts

    @property
    def bytes_per_1k_tokens(self) -> int:
        """Caches of 1000 tokens of context."""
        return 1000 * self.page_bytes // PAGE_TOKENS

    def _held(self, how: str) -> int:
        return sum(kind.nbytes for kind in self.parts if kind.held == how)

    def needs(self, tokens: int, slots: int = 1) -> int:
        """Bytes for the weights and for `slots` slots that hold `tokens` tokens in all."""
        pages = -(-tokens // PAGE_TOKENS) + slots  # each slot may leave a page unfilled, and one is nobody's
        return self.resident_bytes + (slots + 1) * self.slot_bytes + pages * self.page_bytes

    def tokens_in(self, nbytes: int, slots: int = 1) -> int:
        """Tokens that fit into `nbytes` beside the weights, over all slots; 0 if not even the weights fit."""
        room = nbytes - self.resident_bytes - (slots + 1) * self.slot_bytes
        if room < 0:
            return 0
        pages = room // self.page_bytes - slots if self.page_bytes else self.config.max_position_embeddings
        return max(0, min(pages * PAGE_TOKENS, slots * self.config.max_position_embeddings))

    def __str__(self) -> str:
        c, total = self.config, self.resident_bytes + self.disk_bytes
        experts = f"{c.n_routed_experts} experts, top {c.num_experts_per_tok}, {c.n_shared_experts} shared"
        drafter = f"drafter of {c.num_nextn_predict_layers} stages" if self.drafter else "no drafter"
        lines = [
            str(self.path),
            f"{c.num_hidden_layers} layers of width {c.hidden_size}, vocabulary {c.vocab_size}, {experts}, {drafter}, "
            f"context {c.max_position_embeddings}",
            "", "Layers and roles", str(c.roles),
            "", "Tensors by part", table(self.parts),
            "", "Tensors by format", table(self.formats),
            "", f"{size(total)} in all: {size(self.copied_bytes)} copied into memory, {size(self.mapped_bytes)} "
            f"mapped, {size(self.disk_bytes)} on disk; {size(self.routed_bytes)} can be streamed, "
            f"{size(self.expert_bytes)} an expert",
            f"Caches: {size(self.slot_bytes)} a slot and {size(self.page_bytes)} for each {PAGE_TOKENS} tokens "
            f"({size(self.bytes_per_1k_tokens)} per 1000)",
            "", f"Memory, of which {_USABLE:.0%} is counted on", *self._fits(),
        ]  # fmt: skip
        return "\n".join(lines)

    def _fits(self) -> list[str]:
        lines = []
        for gib in SIZES:
            usable = int(gib * GIB * _USABLE)
            tokens = self.tokens_in(usable)
            if tokens:
                rest = f"fits, {tokens} tokens in one slot, {self.tokens_in(usable, 16)} in 16 slots"
            else:
                rest = f"too small by {size(self.needs(PAGE_TOKENS) - usable)}"
                room = (usable - self.needs(PAGE_TOKENS) + self.routed_bytes) // self.expert_bytes
                if room > 0:
                    rest += f'; experts="streamed" has room for {room} of {self.routed_experts}'
            lines.append(f"{gib:>6} GiB  {rest}")
        return lines


def describe(path: str | Path) -> Description:
    """Describes a checkpoint folder; every header is verified, no weight is read.

    Raises CheckpointError or ConfigError (ValueError) as `Model.load` does, FileNotFoundError for no folder.
    """
    with Checkpoint.open(path) as checkpoint:
        return describe_open(checkpoint)


def describe_open(checkpoint: Checkpoint) -> Description:
    """The same of a checkpoint that is open already."""
    config, drafter = checkpoint.config, checkpoint.has_drafter
    stored = expected_tensors(config, drafter)
    parts = kinds((*place(name, checkpoint.why_copied(name)), checkpoint.nbytes(name)) for name in checkpoint.names)
    formats = kinds((_DTYPES[stored[name].dtype], "", "", checkpoint.nbytes(name)) for name in checkpoint.names)
    return Description(checkpoint.path, config, drafter, parts, formats, *cache_sizes(config, drafter))


def place(name: str, why_copied: str | None) -> tuple[str, str, str]:
    """Part of the model, how it is held, and why."""
    part = _part(name)
    if part == _TABLES:
        return part, DISK, "rows are read as tokens ask"
    return (part, MAPPED, "used where it lies in the file") if why_copied is None else (part, COPIED, why_copied)


def _part(name: str) -> str:
    if is_drafter(name):
        return "drafter experts" if ".ffn.experts." in name else "drafter, the rest"
    if name.startswith(("embed.", "head.")):
        return "embedding and head"
    return next((part for mark, part in _PARTS if mark in name), "norms")


def kinds(items: Iterable[tuple[str, str, str, int]]) -> tuple[Kind, ...]:
    """Sums tensors, each with name of its kind, held, why and bytes; the largest kind first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for *kind, nbytes in items:
        found.setdefault((kind[0], kind[1], kind[2]), []).append(nbytes)
    made = [Kind(name, len(sizes), sum(sizes), held, why) for (name, held, why), sizes in found.items()]
    return tuple(sorted(made, key=lambda kind: -kind.nbytes))


def cache_sizes(c: ModelConfig, drafter: bool) -> tuple[int, int]:
    """Bytes of a slot's rings and open pairs, and of a page of 128 tokens, from the config alone."""
    rings = c.num_hidden_layers + (c.num_nextn_predict_layers if drafter else 0)
    ratios = [role.ratio for role in c.roles if role.owns_kv]
    slot = rings * c.sliding_window * RowKind.WINDOW.row_bytes(c.head_dim) + sum(
        8 * c.head_dim for r in ratios if r > 1
    )
    row = RowKind.COMPRESSED.row_bytes(c.head_dim) + RowKind.KEY.row_bytes(c.index_head_dim)
    return slot, sum(PAGE_TOKENS // ratio * row for ratio in ratios)


def table(rows: Sequence[Kind]) -> str:
    """A line a kind: name, tensors, size, how it is held and why."""
    width = max((len(kind.name) for kind in rows), default=0)
    return "\n".join(
        f"{k.name:<{width}}  {k.tensors:>7}  {size(k.nbytes):>10}  {k.held}{': ' + k.why if k.why else ''}".rstrip()
        for k in rows
    )


def size(nbytes: int) -> str:
    """Bytes in words, binary units."""
    for unit, scale in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} B"
