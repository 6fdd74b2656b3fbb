"""Writes the golden cuts of this folder from the full golden folders; knows bytes and names, nothing of the model.

    python cut_goldens.py FOLDER        FOLDER holds golden/{tiny_calm,heads} and trained/extra

Needs numpy only. README.md says what every file is and where its values come from.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ITEM = {"F32": "<f4", "I64": "<i8", "I32": "<i4", "BF16": "<u2", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "u1"}
Tensor = tuple[str, np.ndarray]  # safetensors dtype name, bits

# Rows around every boundary: the first pairs, the window, 64 columns, the first dropped candidate, the last rows.
TINY_ROWS = [*range(4), *range(14, 19), *range(31, 35), *range(47, 50), *range(62, 72)]
HEADS_ROWS = [
    *range(4),
    *range(62, 66),
    *range(95, 98),
    *range(126, 131),
    *range(190, 193),
    *range(255, 258),
    *range(300, 312),
]
TRAINED_ROWS = [
    *range(4),
    *range(30, 35),
    *range(46, 51),
    *range(62, 67),
    127,
    128,
    *range(200, 203),
    *range(300, 303),
    *range(348, 360),
]
DRAFT_LOGITS = (48, 49, 57, 63, 64, 71)


def read(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file as (dtype, bits)."""
    blob = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(bytes(blob[:8]), "little")
    header = json.loads(bytes(blob[8 : 8 + size]))
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            bits = blob[8 + size + begin : 8 + size + end].view(ITEM[entry["dtype"]])
            out[name] = (entry["dtype"], bits.reshape(entry["shape"]))
    return out


def write(path: Path, tensors: dict[str, Tensor], about: dict[str, object]) -> None:
    """A safetensors file; `about` goes into the header's metadata as one JSON string."""
    ordered = sorted(tensors.items(), key=lambda kv: (-np.dtype(ITEM[kv[1][0]]).itemsize, kv[0]))
    header: dict[str, object] = {"__metadata__": {"about": json.dumps(about, separators=(",", ":"))}}
    offset = 0
    for name, (dtype, bits) in ordered:
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [offset, offset + bits.nbytes]}
        offset += bits.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, (_, bits) in ordered:
            f.write(np.ascontiguousarray(bits).tobytes())
    print(f"{path.relative_to(HERE)}: {path.stat().st_size:,} bytes, {len(tensors)} tensors")


def small(tensor: Tensor) -> Tensor:
    """Integers as int32: every id and row of these small shapes fits."""
    dtype, bits = tensor
    return ("I32", bits.astype("<i4")) if dtype == "I64" else (dtype, bits)


class Cut:
    """Collects tensors of one trace; a name kept for some rows only is listed in `rows_of`."""

    def __init__(self, source: dict[str, Tensor], prefix: str, rows: list[int], ratios: dict[int, int]):
        self.source, self.prefix, self.ratios = source, prefix, ratios
        self.tokens = len(source["ids"][1])
        self.tensors: dict[str, Tensor] = {"ids": small(source["ids"])}
        self.rows_of: dict[str, str] = {}
        self.lists: dict[str, list[int]] = {}
        self.list("rows", rows)

    def list(self, name: str, rows: Iterable[int]) -> None:
        self.lists[name] = sorted(rows)
        self.tensors[name] = ("I32", np.array(self.lists[name], "<i4"))

    def whole(self, *names: str) -> None:
        for name in names:
            self.tensors[name] = small(self.source.get(self.prefix + name) or self.source[name])

    def some(self, *names: str, rows: str = "rows") -> None:
        for name in names:
            dtype, bits = self.source.get(self.prefix + name) or self.source[name]
            self.tensors[name] = small((dtype, bits[self.lists[rows]]))
            self.rows_of[name] = rows

    def selection(self, layer: int) -> None:
        """Selected rows, counted from the first compressed row (the published list counts from behind the window)."""
        name = f"layers.{layer}.topk_idxs"
        self.some(name)
        bits = self.tensors[name][1]
        self.tensors[name] = ("I32", np.where(bits < 0, -1, bits - self.tokens).astype("<i4"))

    def latent(self, layer: int) -> None:
        """Latents, and cache rows where the source has them, of the groups that close at a kept row."""
        ratio = self.ratios[layer]
        rows = f"latent_rows.{layer}"
        self.list(rows, {(p + 1) // ratio - 1 for p in self.lists["rows"] if (p + 1) % ratio == 0})
        self.some(f"layers.{layer}.latent", rows=rows)
        for kind in ("compress_kv_cache", "indexer.k_cache"):
            if (name := f"cache.layers.{layer}.attn.{kind}") in self.source:
                self.some(name, rows=rows)

    def write(self, path: Path) -> None:
        write(path, self.tensors, {"rows_of": self.rows_of})


def owners(config: Path) -> tuple[dict[int, int], list[int], list[int], list[int]]:
    text = json.loads(config.read_text())["text_config"]
    ratios = dict(enumerate(text["compress_ratios"]))
    return ratios, text["kv_source_layer_ids"], text["index_source_layer_ids"], text["engram_layer_ids"]


def whole_layers(cut: Cut, layers: list[int], kv: list[int], index: list[int], engram: list[int]) -> None:
    """Everything the sublayers of `layers` need; a layer's input is stored only when no kept tensor equals it."""
    for layer in layers:
        p = f"layers.{layer}."
        cut.whole(p + "attn_in")
        cut.some(*(p + n for n in ("attn_out", "ffn_in", "ffn_out", "gate_idx", "gate_w", "x_out", "pre_out")))
        if layer and layer - 1 not in layers:
            cut.some(p + "pre_in", p + ("engram_in" if layer in engram else "x_in"))
        if layer in engram:
            cut.whole(p + "engram_hash")
            cut.some(p + "engram_out")
        if layer in kv:
            cut.latent(layer)
        if layer in index:
            cut.selection(layer)


def tiny_calm(golden: Path) -> None:
    """The checkpoint whole, as published, and its trace."""
    source, target = golden / "tiny_calm", HERE / "tiny_calm"
    target.mkdir(parents=True, exist_ok=True)
    (target / "inference").mkdir(exist_ok=True)
    names = [
        "config.json",
        "inference/config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
    ]
    for name in [*names, *(f.name for f in sorted(source.glob("model-*.safetensors")))]:
        shutil.copyfile(source / name, target / name)
        (target / name).chmod(0o644)
    tensors = read(source / "golden.safetensors")
    ratios, kv, index, engram = owners(source / "config.json")
    cut = Cut(tensors, "prefill.", TINY_ROWS, ratios)
    whole_layers(cut, list(range(10)), kv, index, engram)
    cut.some("logits", "final_norm_out")
    cut.whole("main_hidden", "gen.tokens", "gen.accepted")
    cut.whole(*(n for n in tensors if n.startswith("cache.") and "compress_kv" not in n and "k_cache" not in n))
    drafts = sorted({int(n.split(".")[1]) for n in tensors if n.startswith("draft.")})
    cut.whole(*(f"draft.{p}.{kind}" for p in drafts for kind in ("ids", "conf")))
    cut.whole(*(f"draft.{p}.logits" for p in DRAFT_LOGITS))
    prompt = json.loads((source / "golden.gen.json").read_text())["prompt"]
    cut.tensors["gen.prompt"] = ("I32", np.array(prompt, "<i4"))
    cut.write(HERE / "tiny_calm_trace.safetensors")


def heads(golden: Path) -> None:
    """Real head sizes: the attention parts of four layers and a cut of one Engram, with their trace."""
    source = golden / "heads"
    tensors = read(source / "golden.safetensors")
    ratios, kv, _, _ = owners(source / "config.json")
    cut = Cut(tensors, "prefill.", HEADS_ROWS, ratios)
    for layer in (1, 2, 6, 8):
        cut.whole(f"layers.{layer}.attn_in")
        if layer in (1, 6):
            cut.some(f"layers.{layer}.attn_out")
        if layer in kv:
            cut.latent(layer)
        if layer in (6, 8):
            cut.selection(layer)
    cut.whole("layers.1.engram_hash")
    cut.some("layers.1.engram_in", "layers.1.engram_out")
    cut.write(HERE / "heads" / "trace.safetensors")

    wanted = [
        "layers.1.attn.",
        "layers.6.attn.",
        "layers.1.engram.",
        "layers.2.attn.compressor.",
        "layers.2.attn.indexer.k_norm",
        "layers.2.attn.indexer.wk.",
        "layers.8.attn.wq_a.",
        "layers.8.attn.q_norm.",
        "layers.8.attn.indexer.",
    ]
    every: dict[str, Tensor] = {}
    for shard in sorted(source.glob("model-*.safetensors")):
        every.update(read(shard))
    kept = {name: t for name, t in every.items() if name.startswith(tuple(wanted))}
    # Stream 0 of the Engram is whole in its 256 key rows; 32 of its value rows are enough to read the gate off.
    touched = np.unique(tensors["prefill.layers.1.engram_hash"][1][HEADS_ROWS])
    key_and_value = np.r_[0:256, 1024:1056]
    cuts = {
        "embed.weight": (touched, 0x7F),
        "embed.scale": (touched, 0x7F),
        "wkv.weight": (key_and_value, 0),
        "wkv.scale": (np.unique(key_and_value // 32), 127),
    }
    about = {}
    for suffix, (rows, fill) in cuts.items():
        name = f"layers.1.engram.{suffix}"
        dtype, bits = kept[name]
        kept[name] = (dtype, bits[rows])
        kept[name + ".rows"] = ("I32", rows.astype("<i4"))
        about[name] = {"rows": name + ".rows", "shape": list(bits.shape), "fill": fill}
    write(HERE / "heads" / "weights.safetensors", kept, {"cut": about})
    shutil.copyfile(source / "config.json", HERE / "heads" / "config.json")
    (HERE / "heads" / "config.json").chmod(0o644)


def trained(folder: Path) -> None:
    """A cut of the long code prompt: every role, where selection and candidates drop rows."""
    tensors = read(folder / "extra" / "trace_code_long.safetensors")
    ratios, kv, index, engram = owners(folder / "tiny-v41" / "config.json")
    cut = Cut(tensors, "", TRAINED_ROWS, ratios)
    whole_layers(cut, [1, 2, 3, 6, 8], kv, index, engram)
    cut.whole("layers.4.engram_hash")
    cut.write(HERE / "trained" / "trace_code_long.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder that holds golden/ and trained/")
    folder = parser.parse_args().folder
    tiny_calm(folder / "golden")
    heads(folder / "golden")
    trained(folder / "trained")


if __name__ == "__main__":
    main()
