"""Engram: n-gram rows gathered from tables on disk by the host, injected into the streams (docs/model.md#engram).
Knows no slots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, WeightSource
from tensorfold.checkpoint.table import RowPool
from tensorfold.config import ModelConfig
from tensorfold.network.engram_hash import EngramHash

CACHE_BYTES = 64 * 2**20
OVERHEAD = 256  # bytes that Python takes for a kept row beside its bits, roughly
Bits = tuple[bytes, bytes]
Rows = tuple[np.ndarray, np.ndarray]
Lookup = tuple[Sequence[int], Sequence[int]]
# the Engram rows of ids, each lookup's after its history
Gather = Callable[[Sequence[Lookup]], list[Rows]]


class TableSource(Protocol):
    """Where tables come from: a Checkpoint, or a partial one in tests. `table` gives a Table of `checkpoint.table`, or
    what has its shape, read, load and check."""

    def table(self, name: str) -> Any: ...


class EngramTables:
    """The tables, and the rows that a round asks for; on disk they stay in their files, beside a cache of hot rows.

    in_memory: copies the tables whole, which later reads need no file for. cache_bytes: budget of the hot rows.
    on_table: called after each table that was copied.
    """

    def __init__(
        self,
        source: TableSource,
        config: ModelConfig,
        token_map: np.ndarray | None,
        in_memory: bool = False,
        cache_bytes: int = CACHE_BYTES,
        on_table: Callable[[], None] = lambda: None,
    ):
        names = [f"layers.{layer}.engram.embed" for layer in config.engram_layer_ids]
        self._hash = EngramHash(config, token_map) if names and token_map is not None else None
        self._files = [(source.table(n + ".weight"), source.table(n + ".scale")) for n in names]
        self._whole: list[Rows] = []
        for codes, scales in self._files if in_memory else ():
            self._whole.append((codes.load(), scales.load()))
            on_table()
        widths = [codes.shape[1] + scales.shape[1] for codes, scales in self._files]
        self._hot = [HotRows(cache_bytes // len(names), width) for width in widths]
        self._pool = RowPool()

    def __call__(self, history: Sequence[int], ids: Sequence[int]) -> list[Rows]:
        """Rows of `ids` after `history` (its last `engram_history` ids suffice), as `gather` gives them."""
        return self.gather([(history, ids)])

    def gather(self, lookups: Sequence[Lookup]) -> list[Rows]:
        """Rows of every lookup, (ids before, ids asked for), one behind the other: per layer codes
        uint8 [R, n, d] and scales uint8 [R, n, d/32]. Each row is read once, all layers in one parallel read.

        Raises CheckpointError naming shard and tensor when a row cannot be read, or its file was cut or changed."""
        if self._hash is None:
            return []
        hashed = [self._hash.rows(ids, history) for history, ids in lookups]
        rows = np.concatenate(hashed, axis=1)
        if self._whole:
            return [(codes[r], scales[r]) for (codes, scales), r in zip(self._whole, rows)]
        return self._from_disk(rows)

    def _from_disk(self, rows: np.ndarray) -> list[Rows]:
        unique = [np.unique(r.reshape(-1), return_inverse=True) for r in rows]
        found = [hot.find(numbers.tolist()) for hot, (numbers, _) in zip(self._hot, unique)]
        missing = [[row for row, bits in known.items() if bits is None] for known in found]
        wanted = [(table, few) for files, few in zip(self._files, missing) for table in files]
        read = self._pool.read(wanted)
        out = []
        for i, known in enumerate(found):
            fresh = dict(zip(missing[i], zip(read[2 * i], read[2 * i + 1])))
            self._hot[i].keep(fresh)
            bits = [fresh[row] if pair is None else pair for row, pair in known.items()]
            inverse = unique[i][1].reshape(rows[i].shape)
            codes, scales = (np.frombuffer(b"".join(part), np.uint8).reshape(len(bits), -1) for part in zip(*bits))
            out.append((codes[inverse], scales[inverse]))
        return out

    @property
    def in_memory_bytes(self) -> int:
        """Bytes of tables that are held whole."""
        return sum(codes.nbytes + scales.nbytes for codes, scales in self._whole)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the hot rows now."""
        return sum(hot.nbytes for hot in self._hot)

    def restart(self) -> None:
        """Lets the hot rows go: what load tried is nobody's asking."""
        for hot in self._hot:
            hot.clear()

    def close(self) -> None:
        """Ends the reading threads; call it before the files are closed."""
        self._pool.close()


class HotRows:
    """The rows of one pair of tables that were asked for last, within a budget of bytes; row_bytes: of codes and scales
    together."""

    def __init__(self, budget: int, row_bytes: int):
        self._cost = row_bytes + OVERHEAD
        self._most = budget // self._cost
        self._rows: OrderedDict[int, Bits] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take, roughly."""
        return len(self._rows) * self._cost

    def find(self, rows: Sequence[int]) -> dict[int, Bits | None]:
        """Each of `rows` with its bits, or None where it is not here."""
        known, out = self._rows, dict[int, "Bits | None"]()
        for row in rows:
            bits = out[row] = known.get(row)
            if bits is not None:
                known.move_to_end(row)
        return out

    def clear(self) -> None:
        self._rows.clear()

    def keep(self, rows: Mapping[int, Bits]) -> None:
        """Adds rows, then lets those go that were not asked for the longest."""
        if not self._most:
            return
        self._rows.update(rows)
        while len(self._rows) > self._most:
            self._rows.popitem(last=False)


class Engram:
    """The injection of one layer."""

    def __init__(self, source: WeightSource, prefix: str, backend: Backend):
        self.backend = backend
        self.wkv = backend.load_fp8(source, [f"{prefix}.engram.wkv"])
        self.q_weight, self.k_weight = (source.array(f"{prefix}.engram.{n}_weight") for n in "qk")

    def __call__(self, x: mx.array, codes: mx.array, scales: mx.array) -> mx.array:
        """bf16 [R, n, D] and the gathered rows -> bf16 [R, n, D]."""
        b = self.backend
        kv = b.matvec_fp8(b.act_quant_fp8(b.engram_rows(codes, scales)), self.wkv)
        return b.engram_inject(x, kv, self.q_weight, self.k_weight)
