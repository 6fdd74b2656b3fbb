"""Every sampling keyword is checked before anything is computed; knows no arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorfold.engine.sampling import KEYWORDS, SamplingParams, parse

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_tokens", v) for v in (0, -1, 1.5, True, NAN, INF, "8", [1])],
        *[("temperature", v) for v in (-0.1, NAN, INF, -INF, True, "1", 1e38, 10**400, 1j)],
        *[("temp", v) for v in (-1, NAN, "hot", False)],
        *[("top_p", v) for v in (-0.1, 1.1, NAN, INF, True, "0.9")],
        *[("top_k", v) for v in (-1, 1.0, True, NAN, "5")],
        *[("min_p", v) for v in (-0.1, 1.5, NAN, INF, False, "0")],
        *[("repetition_penalty", v) for v in (0, 0.0, -1.1, NAN, INF, True, "1.1", 1e-300, 1e39)],
        *[("logit_bias", v) for v in ([1, 2], {1: NAN}, {1: INF}, {1: 1e39}, {1: "3"}, {1: True}, {"1": 2.0})],
        *[("logit_bias", v) for v in ({1.0: 2.0}, {True: 1.0}, {-1: 1.0}, {100: 1.0}, "ab", 3)],
        ("logit_bias", {i: -INF for i in range(100)}),
        *[("stop", v) for v in ("", ["a", ""], [1], 5, {"a"}, [b"a"], b"a", [["a"]])],
        *[("seed", v) for v in (-1, 2**64, 1.0, True, "a", NAN, [1])],
        *[("logprobs", v) for v in (-1, 21, True, 2.0, "3", NAN)],
        *[(f"{kind}_penalty", v) for kind in ("presence", "frequency") for v in (-2.1, 2.5, NAN, INF, True, "1")],
        *[("stop_token_ids", v) for v in (5, "5", b"5", {5}, [100], [-1], [True], [1.0], ["5"], [[5]], np.array(5))],
        *[("ignore_eos", v) for v in (1, 0, "yes", 1.0)],
        *[("min_tokens", v) for v in (-1, 1.5, True, "8", 257)],
        *[("prompt_logprobs", v) for v in (-1, 21, True, 2.0, "3")],
        ("temperature", np.bool_(True)),
        ("max_tokens", np.float32(3)),
        ("top_p", np.float64(NAN)),
    ],
)
def test_a_wrong_value_is_refused_and_named(name, value):
    with pytest.raises(ValueError, match=name):
        parse({name: value}, 100)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", True),
        ("max_tokens", 1.5),
        ("temperature", "1"),
        ("top_k", 2.0),
        ("seed", "a"),
        ("stop", 5),
        ("logit_bias", [1]),
        ("logprobs", False),
        ("min_p", None.__class__),
    ],
)
def test_a_wrong_type_is_a_type_error_too(name, value):
    with pytest.raises(TypeError, match=name):
        parse({name: value}, 100)


def test_an_unknown_keyword_is_never_dropped():
    with pytest.raises(TypeError, match="sead"):
        parse({"sead": 1}, 100)


def test_both_names_of_the_temperature_at_once_are_refused():
    with pytest.raises(ValueError, match="temp"):
        parse({"temp": 0.5, "temperature": 0.5}, 100)


def test_good_values_reach_their_normal_form():
    given = dict(
        max_tokens=np.int64(7),
        temp=np.float32(0.5),
        top_p=0.9,
        top_k=np.uint8(5),
        min_p=0,
        logprobs=20,
        repetition_penalty=2,
        logit_bias={np.int32(9): -INF, 3: 1},
        stop=["b", "a", "b"],
        seed=2**64 - 1,
        presence_penalty=-2,
        frequency_penalty=np.float32(0.5),
        stop_token_ids=np.array([7, 5, 7]),
        ignore_eos=np.bool_(True),
        min_tokens=7,
        prompt_logprobs=0,
    )
    bias = ((3, 1.0), (9, -INF))
    first = 7, 0.5, 0.9, 5, 0.0, 2.0, bias, ("b", "a"), 2**64 - 1, 20
    assert parse(given, 100) == SamplingParams(*first, True, -2.0, 0.5, (5, 7), True, 7, 0)
    assert parse({"stop": "ab", "seed": 0}, 100).stop == ("ab",)
    assert parse({"logprobs": 0, "seed": 0}, 100).logprobs == 0


def test_off_has_one_form_and_none_is_the_default():
    plain = parse({"seed": 5}, 100)
    assert plain == SamplingParams(seed=5)
    off = dict(seed=5, temp=0, top_p=0.0, top_k=100, min_p=0.0, repetition_penalty=1, logit_bias={}, stop=[])
    off |= dict(presence_penalty=0, frequency_penalty=0.0, stop_token_ids=(), ignore_eos=False, min_tokens=0)
    assert parse(off, 100) == plain
    assert parse({**{name: None for name in KEYWORDS}, "seed": 5}, 100) == plain
    assert parse({"seed": 5, "top_p": 1}, 100) == plain
    assert 0 < np.float32(parse({"top_p": 1e-300}, 100).top_p) < 1e-30


def test_min_tokens_leaves_something_to_draw():
    """Bans, stop ids and what the model ends with, all together; where nothing is held they may be all there is."""
    some, rest = {i: -INF for i in range(50)}, list(range(50, 99))
    for more in ({}, {"ignore_eos": True, "stop_token_ids": [*rest, 99]}):
        given = {"logit_bias": some, "stop_token_ids": rest, **more}
        assert parse(given, 100, [99]).min_tokens == 0
        with pytest.raises(ValueError, match="min_tokens=3 leaves no token"):
            parse({**given, "min_tokens": 3}, 100, [99])
    free = {"logit_bias": some, "stop_token_ids": rest, "ignore_eos": True, "min_tokens": 3}
    assert parse(free, 100, [99]).min_tokens == 3


@pytest.mark.parametrize("given", [{}, {"temp": 1.5, "logit_bias": {4: -INF}, "stop": "a", "stop_token_ids": [5, 4]}])
def test_keywords_of_choices_give_the_choices_again(given):
    params = parse(given, 100)
    assert parse(params.keywords(), 100) == params


def test_without_a_seed_one_is_drawn_and_seed_zero_is_a_seed():
    assert len({parse({}, 100).seed for _ in range(20)}) == 20
    assert parse({"seed": 0}, 100).seed == 0
    assert all(0 <= parse({}, 100).seed < 2**64 for _ in range(20))
