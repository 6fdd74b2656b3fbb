"""Engram rows of a round: one read for all lanes and layers, each row once; the same from disk, cache and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.network import engram as module
from tensorfold.network.engram import EngramTables, HotRows
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer
from tests.network.sublayers import FOLDERS

RUNS = [([], [5, 9, 200, 5, 9, 200]), ([5, 9, 200], [5, 9]), ([7, 8], [9]), ([1, 2, 3, 4, 5, 9, 200], [5])]


@pytest.fixture(scope="module")
def checkpoint() -> Any:
    with Checkpoint.open(FOLDERS["trained"]) as ck:
        yield ck


@pytest.fixture(scope="module")
def token_map(checkpoint: Checkpoint) -> np.ndarray:
    return engram_token_map(Tokenizer.from_folder(checkpoint.path, checkpoint.config), checkpoint.config)


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


def make(checkpoint: Checkpoint, token_map: np.ndarray, **options: Any) -> EngramTables:
    return EngramTables(checkpoint, checkpoint.config, token_map, **options)


def by_hand(tables: EngramTables, checkpoint: Checkpoint, runs: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows by the hash and plain indexing, lane by lane."""
    assert tables._hash is not None
    rows = np.concatenate([tables._hash.rows(ids, history[-3:]) for history, ids in runs], axis=1)
    names = [f"layers.{layer}.engram.embed" for layer in checkpoint.config.engram_layer_ids]
    return [(checkpoint.raw(n + ".weight")[r], checkpoint.raw(n + ".scale")[r]) for n, r in zip(names, rows)]


@pytest.mark.parametrize("options", [{}, {"cache_bytes": 0}, {"cache_bytes": 30_000}, {"in_memory": True}], ids=str)
def test_all_lanes_give_what_each_gives(checkpoint: Checkpoint, token_map: np.ndarray, options: dict[str, Any]) -> None:
    tables = make(checkpoint, token_map, **options)
    rng = np.random.default_rng(2)
    for _ in range(40):
        runs = [(rng.integers(3, 400, 3).tolist(), rng.integers(3, 60, n).tolist()) for n in rng.integers(1, 17, 4)]
        for some in (RUNS, runs):
            got = tables.gather(some)
            assert same(got, by_hand(tables, checkpoint, some))
            alone = [tables(*run) for run in some]
            assert same(got, [tuple(np.concatenate(part) for part in zip(*layer)) for layer in zip(*alone)])
    assert tables.cache_bytes <= options.get("cache_bytes", module.CACHE_BYTES)
    tables.close()


def test_one_read_a_round_each_row_once_and_none_that_is_kept(
    checkpoint: Checkpoint, token_map: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = make(checkpoint, token_map)
    reads: list[list[list[int]]] = []
    plain = tables._pool.read
    monkeypatch.setattr(tables._pool, "read", lambda w: reads.append([list(rows) for _, rows in w]) or plain(w))
    tables.gather(RUNS)
    assert len(reads) == 1 and len(reads[0]) == 4  # codes and scales of two layers
    assert tables._hash is not None
    rows = [tables._hash.rows(ids, history[-3:]) for history, ids in RUNS]
    for layer in range(2):
        unique = np.unique(np.concatenate([r[layer].reshape(-1) for r in rows]))
        assert sorted(reads[0][2 * layer]) == sorted(reads[0][2 * layer + 1]) == unique.tolist()
    tables.gather(RUNS)
    assert reads[1] == [[], [], [], []]
    tables.close()


def test_rows_in_memory_need_no_file(token_map: np.ndarray) -> None:
    with Checkpoint.open(FOLDERS["trained"]) as ck:
        tables = make(ck, token_map, in_memory=True)
        before = tables.gather(RUNS)
        assert tables.in_memory_bytes == sum(ck.nbytes(n) for n in ck.names if ".engram.embed." in n)
    assert same(tables.gather(RUNS), before)


def test_the_row_that_was_not_asked_for_the_longest_goes_first() -> None:
    bits = (b"12345678", b"1")
    hot = HotRows(4 * (9 + module.OVERHEAD) - 1, 9)
    hot.keep({1: bits, 2: bits, 3: bits})
    assert hot.find([1]) == {1: bits}
    hot.keep({4: bits})
    assert hot.find([1, 2, 3, 4]) == {1: bits, 2: None, 3: bits, 4: bits}
    assert hot.nbytes == 3 * (9 + module.OVERHEAD)
    hot.keep({i: bits for i in range(10, 20)})
    assert list(hot._rows) == [17, 18, 19]
    none = HotRows(9 + module.OVERHEAD - 1, 9)
    none.keep({1: bits})
    assert none.find([1]) == {1: None} and none.nbytes == 0


def test_a_model_without_tables_gathers_nothing() -> None:
    with Checkpoint.open(FOLDERS["trained"]) as ck:
        assert EngramTables(ck, ck.config, None).gather(RUNS) == []


def test_every_layer_forgets_and_every_thread_ends(
    checkpoint: Checkpoint, token_map: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorfold.checkpoint.table.SLOW", -1)  # as from a disk: threads start
    tables = make(checkpoint, token_map)
    tables([], list(range(3, 100)))
    assert len(tables._hot) > 1 and all(hot.nbytes for hot in tables._hot)
    tables.restart()
    assert [hot.nbytes for hot in tables._hot] == [0] * len(tables._hot) and tables.cache_bytes == 0
    threads = list(tables._pool._pool._threads) if tables._pool._pool else []
    assert threads
    tables.close()
    assert not any(thread.is_alive() for thread in threads)
