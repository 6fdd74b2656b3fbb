"""Bias, penalty and filters against plain restatements in numpy; knows nothing of noise."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.engine.filters import adjusted, kept
from tensorfold.engine.sampling import RowParams, SamplingParams

INF = np.inf


def rows_of(*choices: SamplingParams, histories=None) -> RowParams:
    return RowParams.build(choices, range(len(choices)), histories)


def hot(**choice) -> SamplingParams:
    return SamplingParams(temperature=1.0, **choice)


def plain_kept(x: np.ndarray, top_p: float, min_p: float, top_k: int) -> np.ndarray:
    """One filter after the other on float64 log-probabilities, as a chain of samplers applies them."""
    x = x.astype(np.float64)
    logp = x - np.log(np.exp(x - x.max()).sum()) - x.max()
    if 0 < top_p < 1:
        order = np.argsort(logp, kind="stable")
        mass = np.exp(logp[order])
        above = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
        cut = logp[order][int((above >= top_p * mass.sum()).sum())]
        logp = np.where(logp < cut, -INF, logp)
    if min_p > 0:
        logp = np.where(logp < logp.max() + np.log(min_p), -INF, logp)
    if 0 < top_k < len(x):
        order = np.lexsort((np.arange(len(x)), -logp))
        logp[order[top_k:]] = -INF
    return logp > -INF


def test_penalties_and_bans_follow_the_stated_order_bit_for_bit():
    """In float32, each step rounded: bias, repetition, frequency, presence, ends; over prompt and reply as stated."""
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 4, (40, 70)).astype(np.float32)
    choices, histories, starts, ends, expected = [], [], [], [], []
    for i in range(40):
        repetition, frequency, presence = rng.choice([1.0, 1.3]), rng.choice([0, 0.7, -0.31]), rng.choice([0, 1.1, -2])
        bias = ((3, 2.5), (60, -INF)) if i % 3 else ()
        history = rng.integers(0, 70, 30).tolist()
        start, held = int(rng.integers(0, 31)), (5, 9) if i % 2 else ()
        choices.append(SamplingParams(
            repetition_penalty=float(repetition), frequency_penalty=float(frequency), presence_penalty=float(presence),
            logit_bias=bias, min_tokens=31 - start if i % 4 < 2 else 30 - start,
        ))  # fmt: skip
        histories.append(history), starts.append(start), ends.append(held)
        x = logits[i].copy()
        for token, value in bias:
            x[token] += np.float32(value)
        for token in set(history):
            x[token] = x[token] / np.float32(repetition) if x[token] > 0 else x[token] * np.float32(repetition)
        for token in set(history[start:]):
            times = np.float32(history[start:].count(token))
            x[token] = x[token] - np.float32(frequency) * times
            x[token] = x[token] - np.float32(presence)
        if i % 4 < 2:
            x[list(held)] = -INF
        expected.append(x)
    rows = RowParams.build(choices, [30] * 40, histories, starts, ends)
    assert np.array_equal(np.array(adjusted(mx.array(logits), rows)), np.stack(expected))


@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
def test_filters_keep_what_a_chain_of_plain_filters_keeps(spread):
    rng = np.random.default_rng(int(spread * 10))
    grid = [(p, m, k) for p in (1.0, 1e-6, 0.3, 0.9, 0.999) for m in (0.0, 0.02, 0.4, 1.0) for k in (0, 1, 5, 60, 499)]
    x = rng.normal(0, spread, (len(grid), 500)).astype(np.float32)
    x[::3] = np.round(x[::3] * 2) / 2  # many ties
    x[1::3, :40] = -INF
    keep = np.array(kept(mx.array(x), rows_of(*(hot(top_p=p, min_p=m, top_k=k) for p, m, k in grid))))
    finite = x > -INF
    for row, choice in enumerate(grid):
        assert np.array_equal(keep[row] & finite[row], plain_kept(x[row], *choice)), choice
        assert keep[row].any()


def test_top_k_keeps_exactly_k_with_ties_to_the_lower_id():
    x = mx.array([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]] * 4)
    keep = kept(x, rows_of(*(hot(top_k=k) for k in (1, 2, 3, 5))))
    assert [np.flatnonzero(row).tolist() for row in np.array(keep)] == [[1], [1, 2], [1, 2, 3], [0, 1, 2, 3, 4]]


def test_top_p_keeps_all_tokens_tied_with_the_last_one_kept():
    x = mx.log(mx.array([[0.4, 0.2, 0.2, 0.2]]))
    assert kept(x, rows_of(hot(top_p=0.5))).tolist() == [[True] * 4]
    assert kept(x, rows_of(hot(top_p=0.39))).tolist() == [[True, False, False, False]]


def test_no_filter_is_no_work_and_off_keeps_everything_beside_others():
    assert kept(mx.zeros((2, 9)), rows_of(hot(), hot())) is None
    assert kept(mx.zeros((1, 9)), rows_of(SamplingParams(top_k=3, top_p=0.5, min_p=0.5))) is None
    x = mx.random.normal((2, 300)) * 30
    keep = kept(x, rows_of(hot(), hot(top_p=0.5, min_p=0.1, top_k=3)))
    assert mx.all(keep[0]).item() and mx.sum(keep[1]).item() <= 3


def test_bias_comes_before_the_penalty_and_each_seen_token_is_penalised_once():
    x = mx.array([[2.0, -2.0, 4.0, -4.0, 0.0, 6.0]] * 2)
    rows = rows_of(
        SamplingParams(repetition_penalty=2.0, logit_bias=((0, -3.0), (5, 2.0))),
        SamplingParams(),
        histories=[[0, 2, 2, 3, 2, 4], [0, 1, 2]],
    )
    assert adjusted(x, rows).tolist() == [[-2.0, -2.0, 2.0, -8.0, 0.0, 8.0], x[1].tolist()]
    reward = rows_of(SamplingParams(repetition_penalty=0.5), SamplingParams(), histories=[[2, 3], []])
    assert adjusted(x, reward).tolist() == [[2.0, -2.0, 8.0, -2.0, 0.0, 6.0], x[1].tolist()]


def test_ids_of_earlier_drafts_may_come_from_the_device():
    x = mx.array([[2.0, 2.0, 2.0, 2.0]] * 2)
    rows = rows_of(*[SamplingParams(repetition_penalty=2.0)] * 2, histories=[[0], []])
    draft = mx.argmax(mx.array([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]), axis=-1, keepdims=True)
    later = rows.at(mx.array([5, 6]), mx.concatenate([draft.astype(mx.int32), mx.array([[-1], [3]])], axis=-1))
    assert adjusted(x, later).tolist() == [[1.0, 2.0, 1.0, 2.0], [2.0, 1.0, 2.0, 1.0]]
    assert adjusted(x, rows).tolist() == [[1.0, 2.0, 2.0, 2.0], [2.0] * 4]


def test_negative_infinity_bans_and_stays_through_the_penalty():
    x = mx.array([[1.0, 2.0]])
    rows = rows_of(SamplingParams(logit_bias=((1, -INF),), repetition_penalty=0.5), histories=[[1]])
    assert adjusted(x, rows).tolist() == [[1.0, -INF]]


def test_rows_must_agree_in_number_and_a_penalty_needs_its_history():
    with pytest.raises(ValueError, match="histor"):
        RowParams.build([SamplingParams(repetition_penalty=2.0)], [0])
    with pytest.raises(ValueError, match="2 rows"):
        RowParams.build([SamplingParams()] * 2, [0])
