"""A network and a drafter without weights, and a byte tokenizer: what they compute is what they read back.

Every cache row holds the ids and the position it stands for, and a row's logits are a function of the window rows that
it reads in the last layer, so a wrong place, a row kept too much or a page shared too long shows as wrong tokens or as
a wrong row.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Sequence
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Backend, Columns
from tensorfold.backend.layout import RowKind
from tensorfold.backend.ops import attention
from tensorfold.config import ModelConfig
from tensorfold.engine import save
from tensorfold.engine.engine import Engine
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.params import SamplingParams
from tensorfold.engine.slot import Slot
from tensorfold.network.compressor import NewRows
from tensorfold.network.dspark import Proposals
from tensorfold.network.engram import Gather
from tensorfold.network.forward import Forward
from tensorfold.state.caches import PAGE_TOKENS, Caches
from tensorfold.state.slot_memory import SlotMemory, readable
from tensorfold.testing.synthetic_config import flat_config

FLAT = flat_config("tiny", engram=True, drafter=True, overrides={"engram_max_ngram_size": 5})
CONFIG = ModelConfig.from_flat({**FLAT, "engram_num_embeddings": [1, 1], "engram_compressed_vocab_size": 512})
WIDTH = CONFIG.sliding_window
FIRST, COUNT = 100, 26  # ids of a..z, the only likely ones
STAGES, LAYERS = CONFIG.num_nextn_predict_layers, CONFIG.num_hidden_layers
TAPPED = max(CONFIG.dspark_target_layer_ids)


class Bytes:
    """Id t of 3..258 is byte t - 3; others write nothing."""

    eos_id, eos_ids, special_ids = 1, (1, 2), frozenset[int]()
    backend = SimpleNamespace(marks={})

    def detokenizer(self, hidden: Container[int] = ()) -> Bytes:
        new = Bytes()
        new._hidden = hidden
        new._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return new

    def add(self, token: int) -> str:
        return self._decoder.decode(bytes([token - 3]) if 3 <= token < 259 and token not in self._hidden else b"")

    def finish(self) -> str:
        return self._decoder.decode(b"", True)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        reader = self.detokenizer()
        return "".join(map(reader.add, ids)) + reader.finish()


class MockBackend:
    """What rounds, commits and gathers need."""

    draw, commit = None, Backend.commit

    def gather(self, rows: Columns) -> mx.array:
        return attention.gather(rows)


def encode(a: mx.array, b: mx.array, size: int) -> mx.array:
    """Two int32 [N] as packed rows uint8 [N, size]."""
    parts = mx.stack([a & 255, a >> 8, b & 255, b >> 8], -1).astype(mx.uint8)
    return mx.pad(parts, ((0, 0), (0, size - 4)))


def decode(rows: mx.array) -> tuple[mx.array, mx.array]:
    r = rows.astype(mx.int32)
    return r[..., 0] + 256 * r[..., 1], r[..., 2] + 256 * r[..., 3]


def term(ids, position):
    """What a token adds to the sum that decides the next one."""
    return ids * (1 + position % 5)


def logits_of(total: mx.array) -> mx.array:
    """int32 [R] -> float32 [R, V]: only letters are likely."""
    v = mx.arange(CONFIG.vocab_size)[None]
    score = ((total[:, None] * 31 + v * 89) % 251).astype(mx.float32) / 25
    return mx.where((v >= FIRST) & (v < FIRST + COUNT), score, -50.0)


def next_greedy(ids: Sequence[int]) -> int:
    """The token after `ids`, from their ids alone."""
    first = max(0, len(ids) - WIDTH)
    total = sum(int(term(i, p)) for p, i in enumerate(ids[first:], first))
    score = (total * 31 + np.arange(FIRST, FIRST + COUNT) * 89) % 251
    return FIRST + int(np.argmax(score))


def greedy(prompt: Sequence[int], count: int) -> list[int]:
    """`count` tokens after a prompt."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(next_greedy(ids))
    return ids[len(prompt) :]


class MockNetwork:
    """`eos_after` and `bad` are tokens that turn a row's logits to `eos`, or to NaN, when they are the row's own id."""

    def __init__(self, eos_after: int | None = None, bad: int | None = None, eos: int = Bytes.eos_id):
        self.config, self.backend, self.eos_after, self.bad, self.forwards = CONFIG, MockBackend(), eos_after, bad, 0
        self.eos = eos
        self.traceable = False

    def __call__(self, plan, caches: Caches, watch=None) -> Forward:
        self.forwards += 1
        ids = plan.ids
        position = plan.compressed[1].visible[: plan.rows] - 1
        window = encode(ids, position, caches.window[0].shape[1])
        sources = {}
        for source, ratio in caches.sources.items():
            part, pairs = plan.compressed[ratio], None
            if ratio > 1:
                pairs = mx.zeros((plan.rows, 2, CONFIG.head_dim)) + mx.stack([ids, position], 1)[:, :, None]
            first, last = ids[part.closing], position[part.closing]
            if ratio > 1:
                group = mx.concatenate([caches.pairs[source], pairs])[part.partner]
                first = group[:, 0, 0, 0].astype(mx.int32) + 2 * group[:, 1, 0, 0].astype(mx.int32)
            rows = [encode(first, last, pool[source].shape[1]) for pool in (caches.rows, caches.keys)]
            sources[source] = NewRows(*rows, pairs)
        if watch is not None:
            watch.extend([mx.array(True)] * 4 + [mx.array(False)] * (CONFIG.num_hidden_layers - 4))
        taps, tapped = mx.stack([ids, position], 1), self.tapped_rows(plan)
        logits = self._logits(plan.first(plan.reach[-1]), window, caches)[plan.head] if plan.head.size else None
        rows = [window[:count] for count in plan.reach if count]
        return Forward(logits, taps[:tapped] if tapped else None, rows, sources)

    def tapped_rows(self, plan) -> int:
        return plan.reach[TAPPED]

    def _logits(self, plan, window: mx.array, caches: Caches) -> mx.array:
        """Of the rows that run the last layer."""
        ids, rows = plan.ids, Columns(caches.window[LAYERS - 1], window[: plan.rows], plan.window, RowKind.WINDOW)
        seen, where = decode(self.backend.gather(rows))
        total = mx.sum(mx.where(plan.window >= 0, term(seen, where), 0), 1)
        pools = [pool[source][0, 0] for pool in (caches.rows, caches.keys) for source in caches.sources]
        total = total + 0 * mx.stack(pools).sum().astype(mx.int32)  # a graph of a round holds every pool
        for codes, scales in plan.engram:
            total = total + codes.astype(mx.int32).sum((1, 2)) + scales.astype(mx.int32).sum((1, 2))
        out = logits_of(total)
        if self.eos_after is not None:
            one = mx.arange(CONFIG.vocab_size)[None] == self.eos
            out = mx.where((ids == self.eos_after)[:, None], mx.where(one, 99.0, 0.0), out)
        if self.bad is not None:
            out = mx.where((ids == self.bad)[:, None], mx.nan, out)
        return out


def engram_rows(runs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """A code and a scale of each row, which follow from its last n-gram of ids."""
    codes = []
    for before, ids in runs:
        every, n = [*before, *ids], CONFIG.engram_max_ngram_size
        for i in range(len(before), len(every)):
            codes.append(sum((j + 1) * t for j, t in enumerate(every[i::-1][:n])) % 251)
    rows = np.array(codes, np.uint8).reshape(-1, 1, 1)
    return [(rows, rows // 9)]


class MockDrafter:
    """Proposes what the target will draw, read from its own rings;
    every so many, `wrong`, it proposes the letter after it.

    `after`: a token, and what is proposed behind it.
    """

    block, backend = CONFIG.dspark_block_size, MockBackend()

    def __init__(self, wrong: int = 0, after: tuple[int, int] = (-1, -1)):
        self.wrong, self.after = wrong, after

    def ingest(self, taps: mx.array, table: mx.array) -> list[mx.array]:
        row = encode(taps[:, 0], taps[:, 1], RowKind.WINDOW.row_bytes(CONFIG.head_dim))
        return [row] * STAGES

    def propose(self, caches: Caches, slots, tokens, position, table, draw) -> Proposals:
        assert table.shape[:2] == (tokens.shape[0], self.block)
        ring = caches.rings[-1].reshape(caches.slots + 1, WIDTH, -1)[slots]
        seen, where = decode(ring)
        filled = mx.arange(WIDTH)[None] < (position + 1)[:, None]
        block, logits = [tokens], []
        for i in range(self.block):
            at = position + 1 + i
            known = filled & (where > (at - WIDTH)[:, None]) & (where <= position[:, None])
            total = mx.sum(mx.where(known, term(seen, where), 0), 1)
            for j, token in enumerate(block):
                total = total + term(token, position + 1 + j)
            logits.append(logits_of(total))
            before = mx.stack(block[1:], 1) if i else mx.zeros((tokens.shape[0], 0), mx.int32)
            token = draw(i, logits[-1], before)
            if self.wrong:
                token = mx.where((token + at) % self.wrong == 0, (token - FIRST + 1) % COUNT + FIRST, token)
            block.append(mx.where(block[-1] == self.after[0], self.after[1], token))
        ids = mx.stack(block[1:], 1)
        return Proposals(ids, mx.zeros(ids.shape), mx.stack(logits, 1))


def make(
    slots: int = 4,
    drafter: MockDrafter | None = None,
    prefix_bytes: int = 0,
    chunk: int = 24,
    context: int = 2000,
    engram: Gather = lambda runs: [],
    **network,
) -> Engine:
    """An engine over the mock, drafts fixed to what each slot asks."""
    memory = SlotMemory(Caches(CONFIG, slots, 1, STAGES))
    lanes = Lanes(MockNetwork(**network), drafter or MockDrafter(), memory, engram, chunk, True)
    return Engine(lanes, Bytes(), context, prefix_bytes, 48)


def params(max_tokens: int = 40, **more) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **more)


def finish(engine: Engine) -> None:
    while engine.step():
        pass


def save_slot(path: Path, engine: Engine, slot: Slot) -> None:
    """As `SlotHandle.save`."""
    save.write(path, save.take(engine, slot, "mock"))


def restore_slot(path: Path, engine: Engine, max_drafts: int) -> Slot:
    """As `Model.restore`."""
    return save.restore(path, save.read(path, "mock", STAGES), engine, max_drafts)


def expected_state(ids: Sequence[int], committed: int, whole_at: int = 0) -> dict[str, np.ndarray]:
    """What `readable` must give for the first `committed` of `ids`, from the ids alone; zeros for what the cone of a
    prompt of `whole_at` rows does not read."""
    n, a = committed, np.asarray(ids, np.int64)

    def rows(first, last, size):
        out = np.zeros((len(first), size), np.uint8)
        out[:, 0], out[:, 1], out[:, 2], out[:, 3] = first & 255, first >> 8, last & 255, last >> 8
        return out

    size = RowKind.WINDOW.row_bytes(CONFIG.head_dim)
    p = np.arange(max(0, n - WIDTH), n)
    state = {"ids": np.asarray(ids, np.int32)}
    state["window"] = np.stack([rows(a[p], p, size)] * (LAYERS + STAGES)) if n else np.zeros(0, np.uint8)
    for layer in range(6, LAYERS + STAGES) if whole_at > n else ():  # layer 6 is the last KV source
        state["window"][layer, p < whole_at - WIDTH - max(0, LAYERS - 1 - layer) * (WIDTH - 1)] = 0
    for source, ratio in {r.layer: r.ratio for r in CONFIG.roles if r.owns_kv}.items():
        last = np.arange(n // ratio) * ratio + ratio - 1
        first = a[last - 1] + 2 * a[last] if ratio == 2 else a[last]
        state[f"rows.{source}"] = rows(first, last, RowKind.COMPRESSED.row_bytes(CONFIG.head_dim))
        state[f"keys.{source}"] = rows(first, last, RowKind.KEY.row_bytes(CONFIG.index_head_dim))
        if n % ratio:
            state[f"pair.{source}"] = np.repeat(np.array([[a[n - 1]], [n - 1]], np.float32), CONFIG.head_dim, 1)
    return state


def check_state(engine: Engine, slot: Slot) -> None:
    """Every readable row of the slot is what its ids say."""
    found, right = readable(engine.memory.caches, slot), expected_state(slot.ids, slot.committed, slot.whole_at)
    assert found.keys() == right.keys()
    for name in right:
        assert np.array_equal(found[name], right[name]), (name, slot.committed, len(slot.ids))
    assert len(slot.pages) >= -(-slot.committed // PAGE_TOKENS)
