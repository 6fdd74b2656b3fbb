"""What the network reads from far places of its files: Engram rows and streamed experts behind 2 and 4 GiB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.backend.kernels.pool import GatheredRoom
from tensorfold.backend.ops import OpsBackend
from tensorfold.backend.pool import LEAVES, Room, Shapes
from tensorfold.checkpoint.files import ShardFile, Stamp
from tensorfold.checkpoint.headers import Entry
from tensorfold.checkpoint.pieces import Piece
from tensorfold.checkpoint.table import Table
from tensorfold.config import ModelConfig
from tensorfold.network.engram import EngramTables
from tensorfold.network.engram_hash import EngramHash, engram_primes
from tensorfold.network.streaming import ExpertPool
from tests.support.goldens import EXAMPLE
from tests.support.sparse import pattern, sparse

BEHIND = 2**31, 2**32
SHAPES = [(32, 32), (32, 2)] * 3  # of an expert's tensors, in the order of LEAVES


class Files:
    """Shards by name that stay open for a test."""

    def __init__(self, folder: Path):
        self.folder, self.open = folder, list[ShardFile]()

    def __call__(self, name: str, size: int, places: list[int], count: int) -> ShardFile:
        path = self.folder / name
        sparse(path, size, places, count)
        self.open.append(ShardFile(path, Stamp.of(path.stat())))
        return self.open[-1]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    for file in made.open:
        file.close()


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_engram_rows(files: Files, cache_bytes: int) -> None:
    """Every row that a text hashes to, in tables of more than 4 GiB, of codes as of scales."""
    config = ModelConfig.from_folder(EXAMPLE)
    layers, per_layer = len(config.engram_layer_ids), (config.engram_max_ngram_size - 1) * config.engram_n_heads
    heads = engram_primes(layers, config.engram_max_ngram_size - 1, config.engram_n_heads, 2**27 // per_layer)
    rows = [int(n) for n in heads.reshape(layers, -1).sum(axis=1)]
    config = replace(
        config, engram_vocab_size=2**27 // per_layer, engram_num_embeddings=tuple(rows),
        engram_compressed_vocab_size=config.vocab_size,
    )  # fmt: skip
    token_map = np.arange(config.vocab_size)
    history, ids = list(range(30, 50)), list(range(60, 76))
    asked = EngramHash(config, token_map).rows(ids, history)
    widths = {"weight": 64, "scale": 40}

    class Source:
        def table(self, name: str) -> Table:
            i, width = config.engram_layer_ids.index(int(name.split(".")[1])), widths[name.rsplit(".")[-1]]
            places = [4096 + row * width for row in np.unique(asked[i]).tolist()]
            assert all(min(places) < far < max(places) for far in BEHIND)
            file = files(name, 4096 + rows[i] * width, places, width)
            return Table(file, name, Entry("I8", (rows[i], width), 4096, 4096 + rows[i] * width))

    tables = EngramTables(Source(), config, token_map, cache_bytes=cache_bytes)
    for _ in range(2):
        for numbers, found in zip(asked, tables(history, ids), strict=True):
            for width, part in zip(widths.values(), found, strict=True):
                expected = [pattern(4096 + int(row) * width, width) for row in numbers.reshape(-1)]
                assert [bits.tobytes() for bits in part.reshape(-1, width)] == expected
    tables.close()


class GatheredBackend(OpsBackend):
    """Rooms as the kernels have them."""

    def expert_room(self, shapes: Shapes, entries: int) -> Room:
        return GatheredRoom(shapes, entries)


@pytest.mark.parametrize("backend", [OpsBackend, GatheredBackend])
def test_streamed_experts(files: Files, backend: type[OpsBackend]) -> None:
    """Experts on both sides of 2 and 4 GiB and across them, each tensor in its place of the entry."""
    sizes = [rows * columns for rows, columns in SHAPES]
    starts = np.cumsum([0, *sizes]).tolist()
    begin = [96, *(far + at for far in BEHIND for at in (-2 * starts[-1], -starts[3] - 5, 2 * starts[-1]))]
    file = files("shard", begin[-1] + starts[-1], [at + start for at in begin for start in starts[:-1]], max(sizes))

    class Source:
        def piece(self, name: str) -> Piece:
            _, expert, leaf = name.split(".", 2)
            i = LEAVES.index(leaf)
            return Piece(file, name, begin[int(expert)] + starts[i], SHAPES[i])

    pool = ExpertPool(backend(ModelConfig.from_folder(EXAMPLE)), Source(), 3)
    pool.layer("layer", len(begin))
    for group in ([0, 3, 6], [1, 2, 4], [5]):
        entries = pool.fetch("layer", group, mx.zeros(1))
        assert pool._room is not None
        for expert, entry in zip(group, entries.tolist()):
            for i, part in enumerate(pool._room.parts(entry)):
                assert part.tobytes() == pattern(begin[expert] + starts[i], max(sizes))[: sizes[i]]
    assert pool.stats.bytes_read == 7 * sum(sizes)
    pool.close()
