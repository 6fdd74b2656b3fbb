"""The pick keeps its laws: a row depends on itself alone, drafts and targets draw alike; knows no model."""

from __future__ import annotations

import inspect
import math

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.engine import elementary, filters, noise, rows
from tensorfold.engine import pick as pick_module
from tensorfold.engine.sampling import RowParams, SamplingParams, log_noise, pick

INF, NAN = math.inf, math.nan
VOCAB = 515
CHOICES = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, seed=2**40 + 3, top_p=0.8),
    SamplingParams(temperature=1.3, seed=0, top_k=7),
    SamplingParams(temperature=2.0, seed=9, min_p=0.05, logprobs=3),
    SamplingParams(repetition_penalty=1.7, logprobs=20),
    SamplingParams(
        temperature=0.9, seed=2**64 - 1, repetition_penalty=0.8, logit_bias=((3, 4.0), (77, -INF)), logprobs=0
    ),
    SamplingParams(logit_bias=((200, 30.0),)),
    SamplingParams(temperature=1.0, seed=4, top_p=0.95, top_k=40, min_p=0.01, repetition_penalty=1.1, logprobs=5),
    SamplingParams(presence_penalty=2.0, frequency_penalty=-0.3, logprobs=2),
    SamplingParams(temperature=1.0, seed=6, frequency_penalty=0.7, logprobs=0),
]


def some_logits(count: int, seed: int = 0, scale: float = 3.0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(0, scale, (count, VOCAB)).astype(np.float32))


def raw(value: mx.array) -> bytes:
    return np.array(value).tobytes()


def draw(logits, choices, positions, histories=None):
    return pick(logits, RowParams.build(choices, positions, histories))


def test_each_row_alone_equals_the_row_among_others_in_any_order():
    rng = np.random.default_rng(1)
    logits = some_logits(16)
    choices = [CHOICES[i % len(CHOICES)] for i in range(16)]
    positions = [int(p) for p in rng.integers(0, 2**31 - 1, 16)]
    histories = [rng.integers(0, VOCAB, rng.integers(0, 40)).tolist() for _ in range(16)]
    for order in (np.arange(16), rng.permutation(16), rng.permutation(16)[:5]):
        batch = draw(
            logits[mx.array(order)],
            [choices[i] for i in order],
            [positions[i] for i in order],
            [histories[i] for i in order],
        )
        for place, i in enumerate(order):
            alone = draw(logits[int(i)][None], [choices[i]], [positions[i]], [histories[i]])
            assert alone.ids.item() == batch.ids[place].item()
            assert alone.finite.item() and batch.finite[place].item()
            wanted = choices[i].logprobs
            if wanted is not None:
                assert raw(alone.logprob[0]) == raw(batch.logprob[place])
                assert raw(alone.top_ids[0]) == raw(batch.top_ids[place, :wanted])
                assert raw(alone.top_logprobs[0]) == raw(batch.top_logprobs[place, :wanted])


def test_the_pick_is_the_largest_perturbed_logit_of_the_kept_tokens():
    count = 64
    logits = some_logits(count, 2)
    choices = [SamplingParams(temperature=0.8, seed=i, top_k=20) for i in range(count)]
    stated = RowParams.build(choices, range(count))
    keep = np.array(filters.kept(logits, stated))
    gumbel = np.array(log_noise(stated.seed, stated.position, VOCAB))
    score = np.where(keep, np.array(logits) - np.float32(0.8) * gumbel, -np.float32(INF))
    assert pick(logits, stated).ids.tolist() == score.argmax(axis=1).tolist()
    ahead = log_noise(stated.seed, stated.position, VOCAB)
    assert pick(logits, stated, noise=ahead).ids.tolist() == score.argmax(axis=1).tolist()


def test_equal_seeds_are_twins_and_other_seeds_part():
    logits = mx.broadcast_to(some_logits(1, 3, 1.0), (20, VOCAB))
    for position in (0, 77):
        twins = draw(logits, [SamplingParams(temperature=1.0, seed=5)] * 20, [position] * 20)
        assert len(set(twins.ids.tolist())) == 1
        parted = draw(logits, [SamplingParams(temperature=1.0, seed=s) for s in range(20)], [position] * 20)
        assert len(set(parted.ids.tolist())) > 10
        mx.random.seed(position)
        again = draw(logits, [SamplingParams(temperature=1.0, seed=s) for s in range(20)], [position] * 20)
        assert again.ids.tolist() == parted.ids.tolist()
    words = [SamplingParams(temperature=1.0, seed=s) for s in (0, 1, 2**32, 2**63)]
    paths = [[draw(logits[:1], [w], [p]).ids.item() for p in range(12)] for w in words]
    assert len({tuple(path) for path in paths}) == 4


def test_a_drafter_with_device_ids_draws_what_the_target_draws():
    """Penalties see the drafts before, and ends are held until the drafted position is past them."""
    penalties = {"repetition_penalty": 3.0, "frequency_penalty": 1.5, "presence_penalty": -0.5}
    choice = SamplingParams(temperature=0.9, seed=8, top_p=0.9, logit_bias=((4, 1.0),), min_tokens=40, **penalties)
    steps = 5
    row = np.array(some_logits(1, 4, 2.0))
    row[0, 77] = 20  # it ends the reply, and comes as soon as it may
    logits = mx.array(np.repeat(row, steps, 0))
    history, first, start = [1, 2, 3], 40, 2
    held = [{77, 5}]
    base = RowParams.build([choice], [first], [history], [start], held)
    drafts: list[mx.array] = []
    for j in range(steps):
        more = mx.concatenate(drafts, axis=-1) if drafts else None
        drafts.append(pick(logits[j][None], base.at(mx.array([first + j]), more)).ids[:, None])
    ids = [d.item() for d in drafts]
    histories = [history + ids[:j] for j in range(steps)]
    stated = RowParams.build([choice] * steps, range(first, first + steps), histories, [start] * steps, held * steps)
    assert pick(logits, stated).ids.tolist() == ids
    assert 77 not in ids[:2] and ids[2] == 77


def test_ties_go_to_the_lower_id():
    logits = mx.array([[0.0, 2.0, 2.0, 1.0], [-0.0, 0.0, -0.0, 0.0], [3.0, 1.0, 3.0, 3.0]])
    assert draw(logits, [SamplingParams()] * 3, range(3)).ids.tolist() == [1, 0, 0]
    cold = SamplingParams(temperature=1e-30, seed=1)
    assert draw(logits, [cold, cold, SamplingParams(temperature=1.0, top_k=1)], range(3)).ids.tolist() == [1, 0, 0]


def test_non_finite_logits_are_flagged_in_their_row_alone():
    logits = np.zeros((5, 70), dtype=np.float32)
    logits[:, 9] = 1
    logits[0, 69], logits[2, 0], logits[3, 33] = NAN, INF, -INF
    plain, sampled = SamplingParams(), SamplingParams(temperature=1.0, seed=1, top_p=0.5)
    for choice in (plain, sampled, SamplingParams(logit_bias=((2, 0.5),))):
        got = draw(mx.array(logits), [choice] * 5, range(5))
        assert got.finite.tolist() == [False, True, False, False, True]
        assert all(0 <= i < 70 for i in got.ids.tolist())
    assert draw(mx.array(logits), [SamplingParams()] * 5, range(5)).ids.tolist()[1::3] == [9, 9]
    ban = SamplingParams(logit_bias=((69, -INF), (0, -INF), (33, -INF)))
    assert draw(mx.array(logits), [ban] * 5, range(5)).finite.tolist() == [False, True, False, False, True]
    held = RowParams.build([SamplingParams(min_tokens=9)] * 5, range(7, 12), starts=[0] * 5, ends=[range(70)] * 5)
    assert pick(mx.array(logits), held).finite.tolist() == [False, False, False, False, True]  # the fifth may end


@pytest.mark.parametrize("heat", [1.0, 1e6, 1e37])
def test_filtered_tokens_never_come_however_hot(heat):
    logits = mx.broadcast_to(mx.arange(100, dtype=mx.float32), (200, 100))
    got = draw(logits, [SamplingParams(temperature=heat, seed=3, top_k=3)] * 200, range(200))
    assert set(got.ids.tolist()) == {97, 98, 99}


@pytest.mark.parametrize("heat", [0.0, 1.0, 100.0])
def test_banned_tokens_never_come_even_when_one_is_left(heat):
    logits = some_logits(40, 6)
    last = SamplingParams(temperature=heat, seed=3, logit_bias=tuple((i, -INF) for i in range(VOCAB) if i != 123))
    got = draw(logits, [last] * 40, range(40))
    assert set(got.ids.tolist()) == {123} and all(got.finite.tolist())
    half = SamplingParams(temperature=heat, seed=3, logit_bias=tuple((i, -INF) for i in range(0, VOCAB, 2)))
    assert all(i % 2 for i in draw(logits, [half] * 40, range(40)).ids.tolist())


def test_logprobs_are_the_log_softmax_after_bias_and_penalty_before_filters():
    choice = SamplingParams(
        temperature=1.0, seed=2, top_k=2, repetition_penalty=2.0, logit_bias=((7, 3.0),), logprobs=20
    )
    logits = some_logits(4, 7, 10.0)
    stated = RowParams.build([choice] * 4, range(4), [[7, 8, 9]] * 4)
    got = pick(logits, stated)
    x = np.array(filters.adjusted(logits, stated)).astype(np.float64)
    exact = x - x.max(axis=1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    order = np.argsort(-x, axis=1, kind="stable")[:, :20]
    assert np.array_equal(np.array(got.top_ids), order)
    np.testing.assert_allclose(np.array(got.top_logprobs), np.take_along_axis(exact, order, 1), rtol=3e-7, atol=5e-7)
    np.testing.assert_allclose(np.array(got.logprob), exact[range(4), got.ids.tolist()], rtol=3e-7, atol=5e-7)


def test_logprobs_break_ties_to_the_lower_id_and_end_where_tokens_are_banned():
    logits = mx.array([[1.0, 2.0, 2.0, 0.0, 1.0]])
    got = draw(logits, [SamplingParams(logprobs=20, logit_bias=((3, -INF),))], [0])
    assert got.top_ids.tolist() == [[1, 2, 0, 4, -1]]
    assert got.top_logprobs.tolist()[0][4] == -INF
    assert math.exp(got.logprob.item()) == pytest.approx(math.e**2 / (2 * math.e**2 + 2 * math.e))
    none = draw(logits, [SamplingParams(logprobs=0)], [0])
    assert none.top_ids.shape == (1, 0) and none.logprob.shape == (1,)


def test_what_no_row_asks_for_is_not_built(monkeypatch):
    def refuse(*_args):
        raise AssertionError("built although no row asks for it")

    for name in ("log_noise", "kept", "_logprobs"):
        monkeypatch.setattr(pick_module, name, refuse)
    greedy = [SamplingParams(seed=3, top_p=0.5, top_k=3, min_p=0.2)] * 3
    logits = some_logits(3, 8)
    assert draw(logits, greedy, range(3)).ids.tolist() == mx.argmax(logits, axis=-1).tolist()
    stated = RowParams.build(greedy, range(3), [[1]] * 3)
    assert stated == RowParams()


def test_wrong_logits_are_refused():
    for logits in (mx.zeros((3,)), mx.zeros((2, 3), dtype=mx.bfloat16)):
        with pytest.raises(ValueError, match="float32"):
            pick(logits, RowParams())


@pytest.mark.parametrize("module", [elementary, filters, noise, pick_module, rows])
def test_sampling_reads_no_device_value_and_is_not_compiled(module):
    source = inspect.getsource(module)
    calls = (
        ".item(",
        ".tolist(",
        "mx.eval(",
        "mx.async_eval(",
        "bool(",
        "float(",
        "mx.compile(",
        "@mx.compile",
        "mx.log(",
        "mx.exp(",
        "mx.log1p(",
        "mx.random",
        "logsumexp",
        "softmax",
    )
    assert [call for call in calls if call in source] == []
