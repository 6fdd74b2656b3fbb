"""Sampling choices of all rows of a round as arrays, built on the host. Knows no logits, slots or device values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    frequency, presence: float32 [R], 0 is off; with them made: int32 [R, P] padded with -1, the ids of the reply before
    the drawn token, each as often as it came. ends: int32 [R, E] padded with -1, ids that are banned while position is
    below until: int32 [R].
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
    frequency: mx.array | None = None
    presence: mx.array | None = None
    made: mx.array | None = None
    ends: mx.array | None = None
    until: mx.array | None = None
    logprobs: int | None = None
    given: mx.array | None = None

    @property
    def plain(self) -> bool:
        """Whether no row asks for more than a temperature: no other field is set, whatever fields there are."""
        return all(getattr(self, f.name) is None for f in fields(self) if f.name not in _WARMTH)

    @property
    def changes(self) -> bool:
        """Whether a row asks for other logits than it was given."""
        return any(a is not None for a in (self.bias_ids, self.penalty, self.made, self.ends))

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
        starts: Sequence[int] | None = None,
        ends: Sequence[Collection[int]] | None = None,
    ) -> RowParams:
        """Arrays of R rows; histories: the ids before the drawn token, used by penalties.

        positions: R integers or an integer array [R]. starts: where each row's reply begins, 0 where not given. ends:
        for each row, ids that min_tokens bans. Lists are padded to a power of two, so that shapes change rarely.
        Raises ValueError when a row has a penalty and no history is given, or when lengths differ.
        """
        rows = len(params)
        given = positions.shape[0] if isinstance(positions, mx.array) else len(positions)
        if any(n != rows for n in (given, *(len(a) for a in (histories, starts, ends) if a is not None))):
            raise ValueError(f"{rows} rows of sampling choices need as many positions, histories, starts and ends")
        sampled = any(p.temperature > 0 for p in params)
        biased = any(p.logit_bias for p in params)
        penalised = any(p.repetition_penalty != 1 for p in params)
        counted = any(p.counts_reply for p in params)
        held = ends is not None and any(ends)
        if histories is None and (penalised or counted):
            raise ValueError("a penalty needs the ids before the drawn token: give histories")
        begins = [0] * rows if starts is None else starts
        asked = [p.logprobs for p in params if p.logprobs is not None]

        def column(pick: Callable[[SamplingParams], float], kind: type, wanted: bool) -> mx.array | None:
            return start_of_longer(np.array([pick(p) for p in params], kind)) if wanted else None

        ids, values, seen, made = None, None, None, None
        if biased:
            ids = _padded([[token for token, _ in p.logit_bias] for p in params], PADDING, np.int32)
            values = _padded([[value for _, value in p.logit_bias] for p in params], 0.0, np.float32)
        if penalised and histories is not None:
            used = [h if p.repetition_penalty != 1 else () for p, h in zip(params, histories, strict=True)]
            seen = _padded(used, PADDING, np.int32)
        if counted and histories is not None:
            replies = [h[n:] if p.counts_reply else () for p, h, n in zip(params, histories, begins, strict=True)]
            made = _padded(replies, PADDING, np.int32)
        seeds = np.array([p.seed for p in params], dtype=np.uint64)
        words = np.stack([seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)], axis=-1).astype(np.uint32)
        position = positions if isinstance(positions, mx.array) else _positions(positions)
        return RowParams(
            temperature=column(lambda p: p.temperature, np.float32, sampled),
            seed=start_of_longer(words) if sampled else None,
            position=position if sampled or held else None,
            # a greedy row's filters cannot change its pick
            top_k=column(lambda p: p.top_k, np.int32, any(p.top_k and p.temperature > 0 for p in params)),
            top_p=column(lambda p: p.top_p, np.float32, any(p.top_p < 1 and p.temperature > 0 for p in params)),
            min_p=column(lambda p: p.min_p, np.float32, any(p.min_p and p.temperature > 0 for p in params)),
            bias_ids=ids,
            bias_values=values,
            penalty=column(lambda p: p.repetition_penalty, np.float32, penalised),
            seen=seen,
            frequency=column(lambda p: p.frequency_penalty, np.float32, counted),
            presence=column(lambda p: p.presence_penalty, np.float32, counted),
            made=made,
            ends=_padded([sorted(e) for e in ends], PADDING, np.int32) if held and ends is not None else None,
            until=_positions([n + p.min_tokens for p, n in zip(params, begins, strict=True)]) if held else None,
            logprobs=max(asked) if asked else None,
        )

    def at(self, position: mx.array, more_seen: mx.array | None = None) -> RowParams:
        """The same rows drawing at position [R] with ids [R, J] (-1 is none) seen as well: a drafter's next step."""

        def longer(ids: mx.array | None) -> mx.array | None:
            if ids is None or more_seen is None:
                return ids
            return mx.concatenate([ids, more_seen.astype(mx.int32)], axis=-1)

        at = None if self.position is None else position
        return replace(self, position=at, seen=longer(self.seen), made=longer(self.made))


def _positions(positions: Sequence[int]) -> mx.array:
    found = np.asarray(positions, np.int64)
    return start_of_longer(found.astype(np.int32) if found.max(initial=0) < 2**31 else found)


def _padded(lists: Sequence[Sequence[float] | np.ndarray], padding: float, dtype: type) -> mx.array:
    longest = max(1, max(len(items) for items in lists))
    table: np.ndarray = np.full((len(lists), 1 << (longest - 1).bit_length()), padding, dtype=dtype)
    for row, items in enumerate(lists):
        table[row, : len(items)] = items
    return mx.array(table)
