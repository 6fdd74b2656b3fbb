"""Sampling choices of all rows of a round as arrays, built on the host. Knows no logits, slots or device values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import mlx.core as mx
import numpy as np

from tensorfold.engine.params import SamplingParams
from tensorfold.small import constant, start_of_longer

PADDING = -1
_WARMTH = frozenset(("temperature", "seed", "position"))  # all that a draw in fewer launches reads


@dataclass(frozen=True)
class RowParams:
    """One entry a row; an array that is None means that no row asks for it, so its work is left out of the graph.

    temperature: float32 [R], 0 is greedy; with it seed: uint32 [R, 2] (low, high word) and position: int32 or int64
    [R], the absolute position of the token being drawn. top_k: int32 [R], 0 is off. top_p: float32 [R], 0 and 1 are
    off. min_p: float32 [R], 0 is off. bias_ids: int32 [R, B] padded with -1, bias_values: float32 [R, B].
    penalty: float32 [R], 1 is off; with it seen: int32 [R, P] padded with -1, every id before the drawn token.
    logprobs: None, or how many likeliest tokens are reported (the most that any row asks). given: int32 [R], a token
    that stands in for the drawn one, -1 for none.
    Every array may also be computed on the device: no value is ever read back.
    """

    temperature: mx.array | None = None
    seed: mx.array | None = None
    position: mx.array | None = None
    top_k: mx.array | None = None
    top_p: mx.array | None = None
    min_p: mx.array | None = None
    bias_ids: mx.array | None = None
    bias_values: mx.array | None = None
    penalty: mx.array | None = None
    seen: mx.array | None = None
    logprobs: int | None = None
    given: mx.array | None = None

    @property
    def plain(self) -> bool:
        """Whether no row asks for more than a temperature: no other field is set, whatever fields there are."""
        return all(getattr(self, f.name) is None for f in fields(self) if f.name not in _WARMTH)

    def warmth(self, rows: int) -> tuple[mx.array, mx.array, mx.array]:
        """temperature float32 [R], seed uint32 [R, 2], position int32 [R] of R rows; zeros where all are greedy."""
        if self.temperature is None or self.seed is None or self.position is None:
            none = [0] * rows
            seeds = constant(np.uint32, *none, *none).reshape(rows, 2)
            return constant(np.float32, *none), seeds, constant(np.int32, *none)
        return self.temperature, self.seed, self.position.astype(mx.int32)

    @staticmethod
    def build(
        params: Sequence[SamplingParams],
        positions: Sequence[int] | mx.array,
        histories: Sequence[Sequence[int] | np.ndarray] | None = None,
    ) -> RowParams:
        """Arrays of R rows; histories: the ids before the drawn token, any order, repeats allowed, used by penalties.

        positions: R integers or an integer array [R]. Lists are padded to a power of two, so that shapes change rarely.
        Raises ValueError when a row has a repetition penalty and no history is given, or when lengths differ.
        """
        rows = len(params)
        given = positions.shape[0] if isinstance(positions, mx.array) else len(positions)
        if given != rows or (histories is not None and len(histories) != rows):
            raise ValueError(f"{rows} rows of sampling choices need as many positions and histories")
        sampled = any(p.temperature > 0 for p in params)
        biased = any(p.logit_bias for p in params)
        penalised = any(p.repetition_penalty != 1 for p in params)
        if penalised and histories is None:
            raise ValueError("a repetition penalty needs the ids before the drawn token: give histories")
        asked = [p.logprobs for p in params if p.logprobs is not None]

        def column(pick: Callable[[SamplingParams], float], kind: type, wanted: bool) -> mx.array | None:
            return start_of_longer(np.array([pick(p) for p in params], kind)) if wanted else None

        ids, values, seen = None, None, None
        if biased:
            ids = _padded([[token for token, _ in p.logit_bias] for p in params], PADDING, np.int32)
            values = _padded([[value for _, value in p.logit_bias] for p in params], 0.0, np.float32)
        if penalised and histories is not None:
            used = [h if p.repetition_penalty != 1 else () for p, h in zip(params, histories, strict=True)]
            seen = _padded(used, PADDING, np.int32)
        seeds = np.array([p.seed for p in params], dtype=np.uint64)
        words = np.stack([seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)], axis=-1).astype(np.uint32)
        place = positions if isinstance(positions, mx.array) else _positions(positions)
        return RowParams(
            temperature=column(lambda p: p.temperature, np.float32, sampled),
            seed=start_of_longer(words) if sampled else None,
            position=place if sampled else None,
            # a greedy row's filters cannot change its pick
            top_k=column(lambda p: p.top_k, np.int32, any(p.top_k and p.temperature > 0 for p in params)),
            top_p=column(lambda p: p.top_p, np.float32, any(p.top_p < 1 and p.temperature > 0 for p in params)),
            min_p=column(lambda p: p.min_p, np.float32, any(p.min_p and p.temperature > 0 for p in params)),
            bias_ids=ids,
            bias_values=values,
            penalty=column(lambda p: p.repetition_penalty, np.float32, penalised),
            seen=seen,
            logprobs=max(asked) if asked else None,
        )

    def at(self, position: mx.array, more_seen: mx.array | None = None) -> RowParams:
        """The same rows drawing at position [R] with ids [R, J] (-1 is none) seen as well: a drafter's next step."""
        seen = self.seen
        if seen is not None and more_seen is not None:
            seen = mx.concatenate([seen, more_seen.astype(mx.int32)], axis=-1)
        return replace(self, position=None if self.position is None else position, seen=seen)


def _positions(positions: Sequence[int]) -> mx.array:
    found = np.asarray(positions, np.int64)
    return start_of_longer(found.astype(np.int32) if found.max(initial=0) < 2**31 else found)


def _padded(lists: Sequence[Sequence[float] | np.ndarray], padding: float, dtype: type) -> mx.array:
    longest = max(1, max(len(items) for items in lists))
    table: np.ndarray = np.full((len(lists), 1 << (longest - 1).bit_length()), padding, dtype=dtype)
    for row, items in enumerate(lists):
        table[row, : len(items)] = items
    return mx.array(table)
