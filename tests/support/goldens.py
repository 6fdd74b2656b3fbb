"""A cut golden trace: tensors by name, some kept for a subset of rows only; it does not compute anything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import mlx.core as mx
import numpy as np

from .compare import widen_bf16
from .sources import read_safetensors

DATA = Path(__file__).resolve().parent.parent / "data"
EXAMPLE = DATA.parent.parent / "examples" / "tiny-v41"
TRACES = {
    "tiny_calm": DATA / "tiny_calm_trace.safetensors",
    "heads": DATA / "heads" / "trace.safetensors",
    "trained": DATA / "trained" / "trace_code_long.safetensors",
}


class Trace:
    """`trace["layers.2.attn_in"]` or `trace.q(2, "attn_in")`: numpy, bfloat16 as float32, int32 and float32 as stored.

    A name kept for some rows has those rows only (`rows_of(name)`); `at(name, rows)` picks by row number either way.
    """

    def __init__(self, path: Path):
        self._tensors, about = read_safetensors(path)
        self._rows_of: dict[str, str] = about.get("rows_of", {})
        self._where: dict[str, dict[int, int]] = {}

    @classmethod
    def load(cls, name: str) -> Trace:
        """One of `tiny_calm`, `heads`, `trained`."""
        return cls(TRACES[name])

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    @property
    def names(self) -> list[str]:
        return sorted(self._tensors)

    @cached_property
    def ids(self) -> np.ndarray:
        """All token ids, int32 [N]."""
        return self["ids"]

    @cached_property
    def rows(self) -> np.ndarray:
        """The token rows kept of most quantities, ascending."""
        return self["rows"]

    def bits(self, name: str) -> np.ndarray:
        """As stored: uint16 for bfloat16."""
        return self._tensors[name][1]

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, bits = self._tensors[name]
        return widen_bf16(bits) if dtype == "BF16" else bits

    def q(self, layer: int, name: str) -> np.ndarray:
        """`self["layers.{layer}.{name}"]`."""
        return self[f"layers.{layer}.{name}"]

    def mx(self, name: str, rows: Sequence[int] | np.ndarray | None = None) -> mx.array:
        """The tensor (or some of its rows) for MLX: bfloat16, float32 or int32."""
        dtype, bits = self._tensors[name]
        out = mx.array(np.ascontiguousarray(bits if rows is None else bits[self._index(name, rows)]))
        return out.view(mx.bfloat16) if dtype == "BF16" else out

    def rows_of(self, name: str) -> np.ndarray:
        """Row numbers along the first axis of a tensor."""
        listed = self._rows_of.get(name)
        return np.arange(len(self._tensors[name][1])) if listed is None else self._tensors[listed][1]

    def _index(self, name: str, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        listed = self._rows_of.get(name)
        if listed is None:
            return np.asarray(rows)
        where = self._where.setdefault(listed, {int(r): i for i, r in enumerate(self._tensors[listed][1])})
        missing = [int(r) for r in rows if int(r) not in where]
        if missing:
            raise KeyError(f"{name} is kept for rows {listed} only, which lack {missing[:5]}")
        return np.array([where[int(r)] for r in rows])

    def at(self, name: str, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows by number; KeyError when the cut lacks one."""
        return self[name][self._index(name, rows)]

    # Layer inputs are stored once: as the previous layer's output, the embedding, or a tensor of their own.
    def stream_before(self, layer: int, embed: np.ndarray | None = None) -> np.ndarray:
        """X at the kept rows entering a layer, before its Engram: float32 [rows, 4, D]; layer 0 needs `embed` bits."""
        for name in (f"layers.{layer}.engram_in", f"layers.{layer}.x_in", f"layers.{layer - 1}.x_out"):
            if name in self:
                return self.at(name, self.rows)
        if layer or embed is None:
            raise KeyError(f"the cut has no input of layer {layer}")
        return np.repeat(widen_bf16(embed[self.ids[self.rows]])[:, None], 4, 1)

    def stream_in(self, layer: int, embed: np.ndarray | None = None) -> np.ndarray:
        """X at the kept rows as the layer's attention sees it, after its Engram."""
        name = f"layers.{layer}.engram_out"
        return self.at(name, self.rows) if name in self else self.stream_before(layer, embed)

    def pre_in(self, layer: int) -> np.ndarray:
        """The collapse weights carried into a layer at the kept rows: float32 [rows, 4]."""
        for name in (f"layers.{layer}.pre_in", f"layers.{layer - 1}.pre_out"):
            if name in self:
                return self.at(name, self.rows)
        if layer:
            raise KeyError(f"the cut has no pre of layer {layer}")
        return np.eye(1, 4, dtype=np.float32).repeat(len(self.rows), 0)
