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
SIZES = (16, 32, 64, 96, 128, 192, 256, 384, 512)  # GiB
_USABLE = 0.75  # share of a machine's memory that is counted on; the rest is for the system and for work in progress
_DTYPES = {"F8_E4M3": "FP8 codes", "I8": "FP4 codes", "F8_E8M0": "block scales", "BF16": "bfloat16", "F32": "float32"}
_PARTS = (
    (".engram.embed.", "Engram tables"), (".engram.", "Engram projections"), (".ffn.experts.", "routed experts"),
    (".ffn.shared_experts.", "shared experts"), (".ffn.gate.", "routers"), (".compressor.", "compressors"),
    (".indexer.", "indexers"), (".attn.", "attention"), (".hc_", "hyper-connections"),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Tensors of one kind. nbytes: as stored. held: "memory" (copied,
    or aliased on Metal where the file allows) or "mapped"."""

    name: str
    tensors: int
    nbytes: int
    held: str


@dataclass(frozen=True)
class Description:
    """A checkpoint at a glance; `str()` of it is a table.

    config: with `config.roles`, a line a layer. parts, formats: its text tensors by what they do and by how they are
    stored.
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
        """Weights that are held in memory."""
        return sum(kind.nbytes for kind in self.parts if kind.held == "memory")

    @property
    def mapped_bytes(self) -> int:
        """Weights that stay in the file: rows are read from the mapping when a token asks for them."""
        return sum(kind.nbytes for kind in self.parts if kind.held == "mapped")

    def needs(self, tokens: int, slots: int = 1) -> int:
        """Bytes for the weights and for `slots` slots that hold `tokens` tokens in all."""
        pages = -(-tokens // PAGE_TOKENS) + slots - 1  # each slot may leave a page unfilled
        return self.resident_bytes + slots * self.slot_bytes + pages * self.page_bytes

    def tokens_in(self, nbytes: int, slots: int = 1) -> int:
        """Tokens that fit into `nbytes` beside the weights, over all slots; 0 if not even the weights fit."""
        room = nbytes - self.resident_bytes - slots * self.slot_bytes
        if room < 0:
            return 0
        pages = room // self.page_bytes - (slots - 1) if self.page_bytes else self.config.max_position_embeddings
        return max(0, min(pages * PAGE_TOKENS, slots * self.config.max_position_embeddings))

    def __str__(self) -> str:
        c, total = self.config, self.resident_bytes + self.mapped_bytes
        experts = f"{c.n_routed_experts} experts, top {c.num_experts_per_tok}, {c.n_shared_experts} shared"
        drafter = f"drafter of {c.num_nextn_predict_layers} stages" if self.drafter else "no drafter"
        lines = [
            str(self.path),
            f"{c.num_hidden_layers} layers of width {c.hidden_size}, vocabulary {c.vocab_size}, {experts}, {drafter}, "
            f"context {c.max_position_embeddings}",
            "", "Layers and roles", str(c.roles),
            "", "Tensors by part", _table(self.parts),
            "", "Tensors by format", _table(self.formats, held=False),
            "", f"{_size(total)} in all: {_size(self.resident_bytes)} in memory, {_size(self.mapped_bytes)} mapped "
            "(rows are read from the file as tokens ask), nothing streamed",
            f"Caches: {_size(self.slot_bytes)} a slot and {_size(self.page_bytes)} for each {PAGE_TOKENS} tokens",
            "", f"Memory, of which {_USABLE:.0%} is counted on", *self._fits(),
        ]  # fmt: skip
        return "\n".join(lines)

    def _fits(self) -> list[str]:
        lines = []
        for size in SIZES:
            usable = int(size * GIB * _USABLE)
            tokens = self.tokens_in(usable)
            if tokens:
                rest = f"fits, {tokens} tokens in one slot, {self.tokens_in(usable, 16)} in 16 slots"
            else:
                rest = f"too small by {_size(self.needs(PAGE_TOKENS) - usable)}"
            lines.append(f"{size:>6} GiB  {rest}")
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
    sizes = {name: checkpoint.nbytes(name) for name in checkpoint.names}
    stored = expected_tensors(config, drafter)
    parts = _kinds(((_part(name), size) for name, size in sizes.items()), mapped="Engram tables")
    formats = _kinds((_DTYPES[stored[name].dtype], size) for name, size in sizes.items())
    return Description(checkpoint.path, config, drafter, parts, formats, *_caches(config, drafter))


def _part(name: str) -> str:
    if is_drafter(name):
        return "drafter experts" if ".ffn.experts." in name else "drafter, the rest"
    if name.startswith(("embed.", "head.")):
        return "embedding and head"
    return next((part for mark, part in _PARTS if mark in name), "norms")


def _kinds(items: Iterable[tuple[str, int]], mapped: str = "") -> tuple[Kind, ...]:
    found: dict[str, list[int]] = {}
    for name, size in items:
        found.setdefault(name, []).append(size)
    kinds = [Kind(n, len(sizes), sum(sizes), "mapped" if n == mapped else "memory") for n, sizes in found.items()]
    return tuple(sorted(kinds, key=lambda kind: -kind.nbytes))


def _caches(c: ModelConfig, drafter: bool) -> tuple[int, int]:
    """Bytes of a slot's rings and open pairs, and of a page."""
    rings = c.num_hidden_layers + (c.num_nextn_predict_layers if drafter else 0)
    ratios = [role.ratio for role in c.roles if role.owns_kv]
    slot = rings * c.sliding_window * RowKind.WINDOW.row_bytes(c.head_dim) + sum(
        8 * c.head_dim for r in ratios if r > 1
    )
    row = RowKind.COMPRESSED.row_bytes(c.head_dim) + RowKind.KEY.row_bytes(c.index_head_dim)
    return slot, sum(PAGE_TOKENS // ratio * row for ratio in ratios)


def _table(kinds: Sequence[Kind], held: bool = True) -> str:
    width = max(len(kind.name) for kind in kinds)
    return "\n".join(
        f"{k.name:<{width}}  {k.tensors:>7}  {_size(k.nbytes):>10}{'  ' + k.held if held else ''}" for k in kinds
    )


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} B"
