"""Which Engram table rows a token reads: numpy on the host; knows no MLX, no tables and no text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tensorfold.config import ModelConfig

_LAYER_SEED = 10007  # the model seeds each layer's multipliers with this times the layer's id
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # make Miller-Rabin exact below 3.3e24


def is_prime(n: int) -> bool:
    """Whether n is prime, exactly, for n below 3.3e24."""
    if n < 2:
        return False
    for p in _WITNESSES:
        if n % p == 0:
            return n == p
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in _WITNESSES:
        x = pow(witness, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def engram_primes(layers: int, orders: int, heads: int, vocab_size: int) -> np.ndarray:
    """Table sizes, int64 [layers, orders, heads]: primes from vocab_size up, each used once in the whole model.

    The model restarts its search for every n-gram order and skips used primes, so the primes are consecutive."""
    found: list[int] = []
    candidate = vocab_size
    while len(found) < layers * orders * heads:
        if is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return np.array(found, np.int64).reshape(layers, orders, heads)


def engram_multipliers(layer_ids: Sequence[int], ngram_size: int, compressed_vocab: int) -> np.ndarray:
    """Odd hash multipliers, int64 [layers, ngram_size], small enough that id * multiplier stays below 2^63."""
    bound = (2**63 - 1) // compressed_vocab // 2
    drawn = [np.random.default_rng(_LAYER_SEED * i).integers(0, bound, ngram_size, np.int64) for i in layer_ids]
    return 2 * np.array(drawn, np.int64).reshape(len(layer_ids), ngram_size) + 1


class EngramHash:
    """The rows of every Engram layer's table for a run of tokens (docs/model.md#engram).

    multipliers int64 [layers, ngram], primes int64 [layers, ngram - 1, heads] (the size of each head's table) and
    offsets int64 [layers, (ngram - 1) * heads] (where each head's table starts) are public facts of the config.
    ValueError if the primes of a layer do not sum to its engram_num_embeddings, or the map does not fit the config."""

    def __init__(self, config: ModelConfig, token_map: np.ndarray) -> None:
        self.layer_ids = tuple(config.engram_layer_ids)
        self.ngram = config.engram_max_ngram_size
        self.history = config.engram_history
        layers, orders, compressed = len(self.layer_ids), self.ngram - 1, config.engram_compressed_vocab_size
        self.token_map = self._checked_map(config, token_map)
        self.pad = int(self.token_map[config.engram_pad_token_id])
        self._image = -1 if config.image_token_id is None else config.image_token_id
        self.multipliers = engram_multipliers(self.layer_ids, self.ngram, compressed)
        self.primes = engram_primes(layers, orders, config.engram_n_heads, config.engram_vocab_size)
        flat = self.primes.reshape(layers, orders * config.engram_n_heads)
        self.offsets = np.cumsum(flat, axis=1) - flat
        sums = tuple(int(s) for s in flat.sum(axis=1))
        if sums != tuple(config.engram_num_embeddings):
            raise ValueError(
                f"engram_num_embeddings is {list(config.engram_num_embeddings)}, but engram_vocab_size "
                f"{config.engram_vocab_size}, {config.engram_n_heads} heads and n-grams up to {self.ngram} give "
                f"{list(sums)} rows for layers {list(self.layer_ids)}: the config contradicts itself"
            )

    @staticmethod
    def _checked_map(config: ModelConfig, token_map: np.ndarray) -> np.ndarray:
        ids = np.ascontiguousarray(token_map, dtype=np.int64)
        if ids.ndim != 1 or len(ids) != config.vocab_size:
            raise ValueError(
                f"the Engram token map has shape {ids.shape}, not one entry for each of {config.vocab_size} ids"
            )
        if ids.min() < 0 or ids.max() >= config.engram_compressed_vocab_size:
            raise ValueError(
                f"the Engram token map holds ids {ids.min()} to {ids.max()}; "
                f"engram_compressed_vocab_size allows 0 to {config.engram_compressed_vocab_size - 1}"
            )
        return ids

    def rows(self, ids: Sequence[int] | np.ndarray, history: Sequence[int] | np.ndarray = ()) -> np.ndarray:
        """Table rows of `ids`, int64 [layers, len(ids), (ngram - 1) * heads], n-gram order major, then head.

        `history` holds the ids just before the first (the last `engram_history` are used); fewer means that the text
        begins there. ValueError for an id outside the vocabulary."""
        history = history[-self.history :]
        now, past = np.asarray(ids, np.int64).reshape(-1), np.asarray(history, np.int64).reshape(-1)
        seen = np.concatenate([past, now])
        if seen.size and (seen.min() < 0 or seen.max() >= len(self.token_map)):
            last = len(self.token_map) - 1
            raise ValueError(f"token ids {seen.min()} to {seen.max()} given; the vocabulary is 0 to {last}")
        keys = self._keys(seen, len(past))
        layers, n = len(self.layer_ids), len(now)
        mixed = keys[0] * self.multipliers[:, :1]
        out = np.empty((layers, n, *self.primes.shape[1:]), np.int64)
        for s in range(1, self.ngram):
            mixed = mixed ^ (keys[s] * self.multipliers[:, s : s + 1])
            out[:, :, s - 1] = mixed[:, :, None] % self.primes[:, None, s - 1]
        out = out.reshape(layers, n, self.offsets.shape[1])
        out += self.offsets[:, None]
        return out

    def _keys(self, seen: np.ndarray, past: int) -> np.ndarray:
        """Compressed ids at distance 0..ngram-1 behind each new token, [ngram, tokens]; pad where nothing is seen."""
        lead = self.history
        mapped = np.concatenate([np.full(lead, self.pad), self.token_map[seen]])
        image = np.concatenate([np.zeros(lead, bool), seen == self._image])
        n, first = len(seen) - past, lead + past
        keys = np.empty((self.ngram, n), np.int64)
        blocked = np.zeros(n, bool)
        for s in range(self.ngram):
            at = slice(first - s, first - s + n)
            blocked = blocked | image[at]  # sticky: nothing is seen past an image
            keys[s] = np.where(blocked, self.pad, mapped[at])
        return keys
