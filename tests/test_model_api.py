"""The public surface: prompt forms, keywords, results, streams, seeds, closing; on the trained tiny checkpoint."""

from __future__ import annotations

import hashlib
import math
import struct
import threading
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold import CapacityError, Generation, Model, Piece
from tensorfold.engine.lanes import Lanes
from tests.support.goldens import EXAMPLE

INF, NAN = math.inf, math.nan
TEXT = "import os\n"
BOS, IMAGE, VOCABULARY = 0, 2047, 2048
BOS_TEXT, USER_TEXT = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>"
BAD_COUNTS: list[tuple[Any, type[Exception]]] = [
    (0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError), ("2", TypeError)
]  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model.load(EXAMPLE) as m:
        yield m


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a round that any model runs."""
    seen: list[int] = []
    run = Lanes.round

    def counted(self: Lanes, slots: Any) -> Any:
        seen.append(len(slots))
        return run(self, slots)

    monkeypatch.setattr(Lanes, "round", counted)
    return seen


def one(model: Model, prompt: Any, **options: Any) -> Generation:
    out = model.generate(prompt, **{"max_tokens": 5, **options})
    assert isinstance(out, Generation)
    return out


def many(model: Model, prompt: Any, **options: Any) -> list[Generation]:
    out = model.generate(prompt, **{"max_tokens": 5, **options})
    assert isinstance(out, list)
    return out


@pytest.fixture(scope="module")
def ids(model: Model) -> list[int]:
    """TEXT with bos."""
    return [BOS, *model.tokenizer.encode(TEXT, add_bos=False)]


# ---- prompts


def test_all_forms_of_one_prompt_give_one_reply(model: Model, ids: list[int]) -> None:
    want = one(model, TEXT)
    forms: list[Any] = [ids, tuple(ids), np.array(ids), np.array(ids, np.uint16), mx.array(ids)]
    forms += [mx.array(ids, mx.int64), [np.int32(i) for i in ids], BOS_TEXT + TEXT]
    for form in forms:
        got = one(model, form, parse_special=isinstance(form, str))
        assert (got.tokens, got.text) == (want.tokens, want.text), form


def test_lists_of_prompts_give_lists_in_order(model: Model, ids: list[int]) -> None:
    a, b = one(model, TEXT).tokens, one(model, "In the beginning").tokens
    assert [g.tokens for g in many(model, [TEXT, "In the beginning"])] == [a, b]
    assert [g.tokens for g in many(model, ["In the beginning", ids, np.array(ids)])] == [b, a, a]
    assert [g.tokens for g in many(model, np.array([ids, ids]))] == [a, a]
    assert [g.tokens for g in many(model, (TEXT,))] == [a]
    assert [g.tokens for g in many(model, [ids])] == [a]


def test_bos_and_special_strings(model: Model) -> None:
    """Text gets bos unless told not to or it has one; a special token's string is text unless parse_special."""

    def count(text: str, **options: Any) -> int:
        return one(model, text, max_tokens=1, **options).stats.prompt_tokens

    bare = count(TEXT, add_bos=False)
    assert count(TEXT) == bare + 1
    assert count(BOS_TEXT + TEXT, parse_special=True) == bare + 1
    assert count(USER_TEXT, parse_special=True) == 2
    assert count(USER_TEXT) > 3


BAD_PROMPTS: list[tuple[Any, type[Exception], str]] = [
    ([], ValueError, "empty"),
    ([[]], ValueError, "prompt 0 is empty"),
    ((), ValueError, "empty"),
    (np.zeros(0, np.int32), ValueError, "empty"),
    ([TEXT, []], ValueError, "prompt 1 is empty"),
    ([5, VOCABULARY], ValueError, "id 2048 at position 1"),
    ([5, -1], ValueError, "id -1 at position 1"),
    ([[5], [5, 6, VOCABULARY]], ValueError, "prompt 1 has id 2048 at position 2"),
    ([5, IMAGE], ValueError, "image id 2047 at position 1"),
    ([5, True], TypeError, "position 1"),
    ([5, 6.0], TypeError, "position 1"),
    (np.array([5.0]), TypeError, "position 0"),
    ([5, TEXT], TypeError, "position 1"),
    ([TEXT, 5], TypeError, "prompt 1"),
    (None, TypeError, "prompt"),
    (7, TypeError, "prompt"),
    (b"bytes", TypeError, "prompt"),
    ({"a": 1}, TypeError, "prompt"),
    ([[[5]]], TypeError, "position 0"),
]


@pytest.mark.parametrize("prompt,error,message", BAD_PROMPTS, ids=[repr(p[0])[:30] for p in BAD_PROMPTS])
def test_bad_prompts_are_refused_before_a_round(
    model: Model, rounds: list[int], prompt: Any, error: type[Exception], message: str
) -> None:
    for call in (model.generate, model.stream, model.open):
        with pytest.raises(error, match=message):
            call(prompt, max_tokens=4)
    assert rounds == [] and model._engine.slots == []


def test_an_empty_text_is_a_prompt_of_bos_alone(model: Model) -> None:
    assert one(model, "").stats.prompt_tokens == 1
    with pytest.raises(ValueError, match="no tokens"):
        model.generate("", add_bos=False)


def test_open_and_stream_take_one_prompt(model: Model) -> None:
    for call in (model.open, model.stream):
        with pytest.raises(ValueError, match="one prompt is wanted"):
            call([TEXT, TEXT])


# ---- keywords

BAD_KEYWORDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_token": 5}, TypeError, r"unknown keyword max_token \(did you mean max_tokens\?\); known are add_bos, "),
    ({"stream": True, "echo": 1}, TypeError, "unknown keyword echo, stream"),
    ({"temperature": 1.0, "temp": 1.0}, ValueError, "temp"),
    *[({"temperature": v}, ValueError, "temperature") for v in (NAN, INF, -INF, -0.1, 1e38)],
    *[({"temp": v}, TypeError, "temp") for v in (True, "1", [1.0], 1j)],
    *[({"top_p": v}, ValueError, "top_p") for v in (NAN, INF, -0.1, 1.1)],
    ({"top_p": True}, TypeError, "top_p"),
    *[({"top_k": v}, ValueError, "top_k") for v in (-1,)],
    *[({"top_k": v}, TypeError, "top_k") for v in (1.5, NAN, True, "3")],
    *[({"min_p": v}, ValueError, "min_p") for v in (NAN, INF, -0.1, 1.5)],
    *[({"repetition_penalty": v}, ValueError, "repetition_penalty") for v in (0, NAN, INF, -1.0)],
    *[({"max_tokens": v}, ValueError, "max_tokens") for v in (0, -1)],
    *[({"max_tokens": v}, TypeError, "max_tokens") for v in (1.5, NAN, INF, True, "8")],
    *[({"seed": v}, ValueError, "seed") for v in (-1, 2**64)],
    *[({"seed": v}, TypeError, "seed") for v in ("a", 1.0, NAN, True)],
    ({"seed": [1, 2]}, ValueError, "2 entries for 1 repl"),
    *[({"logprobs": v}, ValueError, "logprobs") for v in (-1, 21)],
    *[({"logprobs": v}, TypeError, "logprobs") for v in (True, 2.0)],
    *[({"logit_bias": v}, ValueError, "logit_bias") for v in ({VOCABULARY: 1.0}, {-1: 1.0}, {5: NAN}, {5: INF})],
    *[({"logit_bias": v}, TypeError, "logit_bias") for v in ([1.0], {"5": 1.0}, {5: "1"}, {True: 1.0})],
    *[({"stop": v}, ValueError, "stop") for v in ("", ["a", ""])],
    *[({"stop": v}, TypeError, "stop") for v in (5, [5], {"a"})],
    *[({"draft": v}, TypeError, "draft") for v in (1, "yes", 0.0)],
    *[({"max_drafts": v}, ValueError, "max_drafts") for v in (-1, 6)],
    *[({"max_drafts": v}, TypeError, "max_drafts") for v in (1.0, True, "2")],
    *[({"add_bos": v}, TypeError, "add_bos") for v in (1, "no")],
    ({"parse_special": 0}, TypeError, "parse_special"),
    ({"prompt_progress_callback": 5}, TypeError, "prompt_progress_callback"),
]


@pytest.mark.parametrize("options,error,message", BAD_KEYWORDS, ids=[repr(k[0])[1:-1] for k in BAD_KEYWORDS])
def test_bad_keywords_are_refused_before_a_round(
    model: Model, rounds: list[int], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Case 55 and 58: by generate, stream and open at the call, naming the keyword; nothing is open afterwards."""
    for call in (model.generate, model.stream, model.open):
        with pytest.raises(error, match=message):
            call(TEXT, **options)
    assert rounds == [] and model._engine.slots == []


@pytest.mark.parametrize("n,error", BAD_COUNTS)
def test_bad_counts_are_refused_before_a_round(model: Model, rounds: list[int], n: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="n="):
        model.generate(TEXT, n=n)
    assert rounds == []


def test_numpy_numbers_and_none_are_taken(model: Model) -> None:
    numbers: dict[str, Any] = {"temperature": np.float32(0), "seed": np.uint64(2**64 - 1), "top_k": np.int64(3)}
    got = one(model, TEXT, **numbers, stop=None, logprobs=None, n=None)
    assert got.tokens == one(model, TEXT).tokens and got.seed == 2**64 - 1


def test_a_model_without_a_drafter_refuses_drafts() -> None:
    with Model.load(EXAMPLE, draft=False) as plain:
        with pytest.raises(ValueError, match="without a drafter"):
            plain.generate(TEXT, draft=True)
        assert one(plain, TEXT).stats.drafted == []


# ---- results


def test_stats_and_token_hash(model: Model, ids: list[int]) -> None:
    got = one(model, TEXT, max_tokens=9)
    s = got.stats
    assert (s.prompt_tokens, s.generated_tokens) == (len(ids), 9 == len(got.tokens) and 9)
    assert s.token_sha == hashlib.sha256(struct.pack("<9I", *got.tokens)).hexdigest()
    assert s.ttft_s is not None and s.ttft_s > 0 and s.prompt_tps is not None and s.generation_tps is not None
    assert s.generation_tps > 0 and s.peak_memory > 2**20
    assert 0 < s.forwards <= s.rounds + 1 and len(s.drafted) == len(s.accepted) == 5
    assert all(a <= d for a, d in zip(s.accepted, s.drafted))
    assert got.finish_reason == "length" and got.logprobs is None and 0 <= got.seed < 2**64


def test_logprobs_are_of_the_drawn_tokens(model: Model) -> None:
    got = one(model, TEXT, logprobs=3)
    assert got.logprobs is not None and [e.token for e in got.logprobs] == got.tokens
    for entry in got.logprobs:
        assert len(entry.top) == 3 and entry.logprob <= 0
        assert entry.top[0] == (entry.token, pytest.approx(entry.logprob))
        assert list(entry.top) == sorted(entry.top, key=lambda t: -t[1])
    none = one(model, TEXT, logprobs=0).logprobs
    assert none is not None and [e.top for e in none] == [()] * 5


def test_stream_pieces_concatenate_to_the_reply(model: Model) -> None:
    """Texts, tokens, stop strings; the last piece alone has the reason and the stats."""
    for options in ({}, {"stop": ["os"]}, {"temperature": 1.0, "seed": 4}, {"draft": False}):
        want = one(model, TEXT, max_tokens=12, **options)
        pieces = list(model.stream(TEXT, max_tokens=12, **options))
        assert all(isinstance(p, Piece) for p in pieces) and len(pieces) > 2
        assert "".join(p.text for p in pieces) == want.text
        assert [t for p in pieces for t in p.tokens] == want.tokens
        assert [p.finish_reason for p in pieces] == [None] * (len(pieces) - 1) + [want.finish_reason]
        assert pieces[-1].stats is not None and pieces[-1].stats.token_sha == want.stats.token_sha


def test_an_abandoned_stream_frees_its_slot(model: Model) -> None:
    stream = model.stream(TEXT, max_tokens=50)
    next(stream)
    assert len(model._engine.slots) == 1
    stream.close()  # type: ignore[attr-defined]
    assert model._engine.slots == []


def test_split_characters_are_never_shown_broken(model: Model) -> None:
    """Case 49: a reply forced to be letters of several bytes streams without a replacement character."""
    text = "\u010f \U0001f9d1\u200d\U0001f680 \u793e\u533a \u05e2\u05d1\u05e8\u05d9\u05ea"
    wanted = model.tokenizer.encode(text, add_bos=False)
    detokenizer = model.tokenizer.detokenizer()
    pieces = [detokenizer.add(token) for token in wanted]
    assert len(wanted) > len(text) / 2 and all("\ufffd" not in p for p in pieces)
    assert "".join(pieces) + detokenizer.finish() == text


def test_progress_is_told_up_to_the_whole_prompt(model: Model) -> None:
    seen: list[tuple[int, int]] = []
    prompt = list(range(3, 203))
    one(model, prompt, prompt_progress_callback=lambda done, total: seen.append((done, total)))
    assert {t for _, t in seen} == {200} and seen[-1][0] == 200
    assert [d for d, _ in seen] == sorted(d for d, _ in seen) and len({d for d, _ in seen}) >= 3


def test_a_failing_callback_leaves_the_model_usable(model: Model) -> None:
    def fail(done: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.generate(TEXT, max_tokens=4, prompt_progress_callback=fail)
    assert model._engine.slots == [] and len(one(model, TEXT).tokens) == 5


# ---- seeds


def test_seeds_repeat_and_differ(model: Model) -> None:
    """Seed 0 is a seed; without one it is drawn, returned, and repeats the reply."""
    zero = one(model, TEXT, temperature=1.0, seed=0)
    assert zero.seed == 0 and one(model, TEXT, temperature=1.0, seed=0).tokens == zero.tokens
    drawn = one(model, TEXT, temperature=1.0)
    assert one(model, TEXT, temperature=1.0, seed=drawn.seed).tokens == drawn.tokens
    assert one(model, TEXT, temperature=1.0).seed != drawn.seed


def test_a_list_of_seeds_goes_to_the_prompts_in_order(model: Model) -> None:
    both = many(model, [TEXT, TEXT], temperature=1.0, seed=[3, 4])
    assert [g.seed for g in both] == [3, 4]
    assert [g.tokens for g in both] == [one(model, TEXT, temperature=1.0, seed=s).tokens for s in (3, 4)]
    twins = many(model, [TEXT, TEXT], temperature=1.0, seed=3)
    assert twins[0].tokens == twins[1].tokens == both[0].tokens


def test_n_replies_have_seeds_of_their_own(model: Model) -> None:
    got = many(model, TEXT, n=5, temperature=1.0, max_tokens=8)
    assert len(got) == 5 and len({g.seed for g in got}) == 5 and len({tuple(g.tokens) for g in got}) > 1
    assert isinstance(model.generate(TEXT, n=1, max_tokens=1), list)
    assert [g.seed for g in many(model, [TEXT, "x"], n=2, seed=[1, 2, 3, 4])] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="seeds of their own"):
        model.generate(TEXT, n=2, seed=1)


# ---- capacity and closing


def test_what_cannot_fit_is_refused_at_the_call(model: Model, rounds: list[int]) -> None:
    """Case 72: before the first piece; the message has the largest max_tokens that fits, and that one does fit."""
    for call in (model.generate, model.stream, model.open):
        with pytest.raises(CapacityError, match="max_tokens can be at most 4086"):
            call(list(range(3, 13)), max_tokens=4087)
        with pytest.raises(CapacityError, match="shorten the prompt"):
            call([5] * 4096, max_tokens=1)
    with pytest.raises(CapacityError):
        model.generate([TEXT, [5] * 4096], max_tokens=1)
    assert rounds == []
    model.open(list(range(3, 13)), max_tokens=4086).close()


def test_more_prompts_than_slots_queue_and_more_handles_do_not() -> None:
    with Model.load(EXAMPLE, max_slots=2) as small:
        assert [g.tokens for g in many(small, [TEXT] * 5)] == [one(small, TEXT).tokens] * 5
        handles = [small.open(TEXT, max_tokens=3) for _ in range(2)]
        with pytest.raises(CapacityError, match="all 2 slots are open"):
            small.open(TEXT)
        with pytest.raises(CapacityError):
            small.generate(TEXT)
        handles[0].close()
        assert len(one(small, TEXT).tokens) == 5


def test_a_closed_model_says_so() -> None:
    closed = Model.load(EXAMPLE)
    handle, stream = closed.open(TEXT, max_tokens=3), closed.stream(TEXT, max_tokens=3)
    while closed.step():
        pass
    tokens = handle.tokens
    closed.close()
    closed.close()
    assert repr(closed) == "Model(closed)" and handle.tokens == tokens and len(handle.text) > 0
    calls: list[Any] = [
        lambda: closed.generate(TEXT), lambda: closed.stream(TEXT), lambda: closed.open(TEXT), closed.step,
        lambda: closed.remember(TEXT), lambda: closed.restore("x"), handle.cancel, handle.fork,
        lambda: handle.extend("x"), lambda: handle.save("x"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert "".join(p.text for p in stream) == handle.text, "what was finished before stays readable"
    handle.close()


def test_with_closes_and_errors_do_not_keep_it_open() -> None:
    with pytest.raises(KeyError), Model.load(EXAMPLE) as opened:
        raise KeyError
    with pytest.raises(RuntimeError, match="closed"):
        opened.generate(TEXT)


def test_any_thread_may_call(model: Model) -> None:
    want, got = one(model, TEXT).tokens, list[list[int]]()
    threads = [threading.Thread(target=lambda: got.append(one(model, TEXT).tokens)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert got == [want] * 4


@pytest.mark.parametrize(
    "options,error",
    [
        ({"max_slots": 0}, ValueError), ({"max_slots": 17}, ValueError), ({"max_slots": True}, TypeError),
        ({"max_context": 0}, ValueError), ({"max_context": 4097}, ValueError), ({"backend": "metal2"}, ValueError),
        ({"draft": 1}, TypeError), ({"prefix_bytes": -1}, ValueError), ({"snapshot_tokens": 0}, ValueError),
        ({"draft_policy": "often"}, ValueError), ({"max_slot": 2}, TypeError),
    ],
)  # fmt: skip
def test_load_refuses_wrong_arguments(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        Model.load(EXAMPLE, **options)


def test_public_names() -> None:
    assert all(hasattr(tensorfold, name) for name in tensorfold.__all__)
    assert {"Model", "Generation", "Piece", "SlotHandle", "Stats", "ModelConfig"} <= set(tensorfold.__all__)
