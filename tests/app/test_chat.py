"""Chat over a model: pieces, follow-up turns, stops, calls, and what a caller may pass."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold import CapacityError, ChatPiece, ChatReply, Generation, Model, NumericError
from tensorfold.text.chat import encode_chat

pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
DOG = [{"role": "user", "content": "define: dog"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def turn(reply: ChatReply, text: str) -> list[dict[str, Any]]:
    return [*DOG, reply.message, {"role": "user", "content": text}]


def whole(pieces: Iterator[ChatPiece]) -> ChatReply:
    made = list(pieces)
    reply = made[-1].reply
    assert reply is not None and all(p.reply is None for p in made[:-1])
    assert ("".join(p.content for p in made), "".join(p.reasoning for p in made)) == (reply.content, reply.reasoning)
    return reply


def test_a_reply_is_the_generation_of_its_prompt(model: Model) -> None:
    reply = model.chat(DOG, thinking=False, max_tokens=40, logprobs=1)
    ids = encode_chat(model.tokenizer, DOG, thinking=False).ids
    out = model.generate(ids, max_tokens=40, logprobs=1)
    assert isinstance(out, Generation)
    assert (reply.content, reply.tokens, reply.logprobs) == (out.text, out.tokens, out.logprobs)
    assert (reply.reasoning, reply.tool_calls, reply.finish_reason) == ("", [], "stop")
    assert reply.stats.token_sha == out.stats.token_sha and reply.message == {"role": "assistant", "content": out.text}


@pytest.mark.parametrize("thinking", [False, True])
def test_a_follow_up_resumes_and_equals_fresh(model: Model, fresh: Model, thinking: bool) -> None:
    first = whole(model.stream_chat(DOG, thinking=thinking, max_tokens=40))
    assert bool(first.reasoning) == thinking
    messages = turn(first, "define: cat")
    second = model.chat(messages, thinking=thinking, max_tokens=10, temperature=1, seed=3)
    plain = fresh.chat(messages, thinking=thinking, max_tokens=10, temperature=1, seed=3)
    assert second.tokens == plain.tokens and (second.content, second.reasoning) == (plain.content, plain.reasoning)
    before = len(encode_chat(model.tokenizer, DOG, thinking=thinking).ids)
    assert second.stats.reused_tokens >= before - thinking and plain.stats.reused_tokens == 0


TALKS: list[list[dict[str, Any]]] = [
    DOG,
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "define: cat"}],
    [{"role": "user", "content": "use the noun dog in a sentence"}],
]


def test_several_conversations_run_together_and_each_is_as_alone(model: Model, fresh: Model) -> None:
    """More of them than slots; a stop string ends some before their length."""
    talks, seeds = TALKS + TALKS[:2], [1, 2, 3, 4, 5]
    options: dict[str, Any] = {"thinking": False, "stop": "e", "max_tokens": 7, "temperature": 1, "logprobs": 0}
    together = fresh.chat(talks, seed=seeds, **options)
    assert {reply.finish_reason for reply in together} == {"stop", "length"}
    for talk, seed, reply in zip(talks, seeds, together, strict=True):
        alone = model.chat(talk, seed=seed, **options)
        assert (reply.message, reply.finish_reason, reply.seed) == (alone.message, alone.finish_reason, seed)
        assert (reply.tokens, reply.logprobs) == (alone.tokens, alone.logprobs)
        assert reply.stats.token_sha == alone.stats.token_sha


def test_several_conversations_share_their_rounds(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = [], model.desk.step
    monkeypatch.setattr(model.desk, "step", lambda: steps.append(step()))
    replies = model.chat(TALKS, thinking=False, max_tokens=6, draft=False)
    rounds = [r.stats.rounds for r in replies]
    assert max(rounds) <= len(steps) <= max(rounds) + len(TALKS) < sum(rounds)


def test_n_replies_to_each_conversation_come_in_order_with_seeds_of_their_own(model: Model) -> None:
    made = model.chat(TALKS[:2], n=2, thinking=False, max_tokens=4, temperature=1)
    assert len(made) == 4 and len({r.seed for r in made}) == 4
    for reply, talk in ((made[1], TALKS[0]), (made[2], TALKS[1])):
        assert reply.tokens == model.chat(talk, thinking=False, max_tokens=4, temperature=1, seed=reply.seed).tokens
    (one,) = model.chat(DOG, n=1, thinking=False, max_tokens=4)
    assert [one.tokens] == [r.tokens for r in model.chat([DOG], thinking=False, max_tokens=4)]


def test_what_is_wrong_with_one_of_several_is_named_before_anything_runs(model: Model) -> None:
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ([DOG, []], {}, ValueError, "messages[1] is empty"),
        ([[]], {}, ValueError, "messages[0] is empty"),
        ([DOG, [{"role": "x"}]], {}, ValueError, "messages[1][0] has role 'x'"),
        ([DOG, DOG[0]], {}, TypeError, "messages[1] is no list of messages as messages[0] is"),
        ([DOG, DOG], {"seed": [1]}, ValueError, "seed has 1 entries for 2 replies"),
        (DOG, {"n": 0}, ValueError, "n=0"),
        (DOG, {"n": 2, "seed": 1}, ValueError, "seed=1 with n=2"),
        ([DOG, [{"role": "user", "content": "a b c d " * 1500}]], {}, ValueError, "context holds 4096"),
    ]
    for messages, options, error, message in cases:
        with pytest.raises(error) as caught:
            model.chat(messages, thinking=False, **options)
        assert message in str(caught.value)
    with pytest.raises(ValueError, match="stream_chat takes one conversation"):
        model.stream_chat([DOG, DOG])  # type: ignore[list-item]


def test_the_progress_of_several_prompts_is_their_sum(model: Model) -> None:
    seen: list[tuple[int, int]] = []
    total = sum(len(encode_chat(model.tokenizer, talk, thinking=False).ids) for talk in TALKS)
    model.chat(
        TALKS, thinking=False, max_tokens=2, prompt_progress_callback=lambda done, all_: seen.append((done, all_))
    )
    assert seen[-1] == (total, total) and sorted(seen) == seen


def test_a_stop_string_ends_the_content_and_leaves_the_thought_alone(model: Model) -> None:
    free = model.chat(DOG, max_tokens=40)
    stop = free.content[5:9]
    cut = model.chat(DOG, max_tokens=40, stop=[stop, "noun"])
    assert "noun" in free.reasoning and cut.reasoning == free.reasoning
    assert cut.content == free.content[: free.content.index(stop)] and cut.finish_reason == "stop"
    assert cut.tokens == free.tokens[: len(cut.tokens)] and cut.stats.generated_tokens == len(cut.tokens) < len(
        free.tokens
    )
    undrafted = model.chat(DOG, max_tokens=40, stop=[stop, "noun"], draft=False)
    assert (undrafted.tokens, undrafted.stats.token_sha) == (cut.tokens, cut.stats.token_sha)


def test_a_reply_cut_for_length_says_so(model: Model) -> None:
    reply = model.chat(DOG, thinking=False, max_tokens=3)
    assert reply.finish_reason == "length" and len(reply.tokens) == 3


def test_a_continued_message_goes_on(model: Model) -> None:
    whole_reply = model.chat(DOG, thinking=False, max_tokens=40)
    head, ids = "a female", model.tokenizer.encode("a female", add_bos=False)
    assert whole_reply.tokens[: len(ids)] == ids
    messages = [*DOG, {"role": "assistant", "content": head}]
    rest = model.chat(messages, thinking=False, continue_final_message=True, max_tokens=40)
    assert head + rest.content == whole_reply.content


def scripted(
    model: Model, monkeypatch: pytest.MonkeyPatch, text: str, end: str = "stop", step: int = 3, **options: Any
) -> ChatReply:
    """The answer when the slot's rounds draw the tokens of `text`, a few each."""
    tokens = model.tokenizer.encode(text, add_bos=False, parse_special=True) + ([1] if end == "stop" else [])

    def rounds() -> None:
        (slot,) = model._slots
        for token in tokens[:step]:
            slot.reply.add(token)
        del tokens[:step]
        slot.reply.publish() if tokens else slot.finish(end)

    monkeypatch.setattr(model.desk, "step", rounds)
    try:
        return whole(model.stream_chat(DOG, **options))
    finally:
        monkeypatch.undo()


CALL = '\n\n<\uff5cDSML\uff5c calls>\n<\uff5cDSML\uff5c invoke name="f">\n' + (
    '<\uff5cDSML\uff5c parameter name="c" string="true">Paris'
)
END = "</\uff5cDSML\uff5c parameter>\n</\uff5cDSML\uff5c invoke>\n</\uff5cDSML\uff5c calls>"


def test_calls_come_back_as_a_message_of_the_next_turn(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    one, three = (
        scripted(model, monkeypatch, "hm</think>Let me see." + CALL + END, tools=TOOLS, step=n) for n in (1, 3)
    )
    assert one.finish_reason == "tool_calls" and (one.reasoning, one.content) == ("hm", "Let me see.")
    assert [(c.name, c.parsed()) for c in one.tool_calls] == [
        ("f", {"c": "Paris"})
    ] and one.tool_calls == three.tool_calls
    result = {"role": "tool", "tool_call_id": one.tool_calls[0].id, "content": "sunny"}
    prompt = encode_chat(model.tokenizer, [*DOG, one.message, result], TOOLS).text
    assert "<think>hm</think>Let me see." + CALL + END in prompt and "<tool_result>sunny</tool_result>" in prompt
    other = scripted(model, monkeypatch, "hm</think>Let me look." + CALL + END, tools=TOOLS)
    assert other.tool_calls[0].id != one.tool_calls[0].id


def test_a_call_cut_for_length_keeps_what_there_is(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = scripted(model, monkeypatch, CALL, end="length", tools=TOOLS, thinking=False)
    assert reply.finish_reason == "length" and reply.tool_calls[0].arguments == '{"c": "Paris'
    assert reply.tool_calls[0].parsed() is None


def test_a_role_mark_or_a_stop_id_ends_a_reply_and_is_no_text(model: Model) -> None:
    """After min_tokens, before which it is not drawn."""
    user = model.tokenizer.backend.marks["<\uff5cUser\uff5c>"]
    free = model.chat(DOG, thinking=False, max_tokens=40)
    for token, options in ((user, {}), (free.tokens[0], {"stop_token_ids": [free.tokens[0]]})):
        ends: dict[str, Any] = {"logit_bias": {token: 1e4}, "max_tokens": 8, **options}
        assert model.chat(DOG, thinking=False, **ends).tokens == [token]
        reply = model.chat(DOG, thinking=False, min_tokens=3, **ends)
        assert len(reply.tokens) == 4 and reply.tokens[-1] == token and token not in reply.tokens[:3]
        assert reply.content == model.tokenizer.decode(reply.tokens[:3]) and reply.finish_reason == "stop"


def test_min_tokens_of_a_chat_fit_what_its_reply_may_be(model: Model) -> None:
    """By default that is more than generate's."""
    for messages in (DOG, [DOG, DOG]):
        with pytest.raises(ValueError, match="min_tokens=5000 is more than this reply's"):
            model.chat(messages, min_tokens=5000)
        with pytest.raises(ValueError, match="min_tokens=5 is more than max_tokens=4"):
            model.chat(messages, min_tokens=5, max_tokens=4)
        with pytest.raises(ValueError, match="min_tokens or stop, not both"):
            model.chat(messages, min_tokens=5, stop="a")
    pieces = model.stream_chat(DOG, min_tokens=2000)
    next(pieces)
    pieces.close()


def test_a_cancelled_reply_says_so(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scripted(model, monkeypatch, "Hi", end="cancelled", thinking=False).finish_reason == "cancelled"


def test_a_chat_is_cancelled_from_another_thread_and_waits_if_told_to(model: Model) -> None:
    stop = threading.Event()

    def progress(done: int, total: int) -> None:
        stop.set() if done == total else None

    reply = model.chat(DOG, thinking=False, max_tokens=4000, cancel=stop, prompt_progress_callback=progress)
    assert reply.finish_reason == "cancelled" and reply.stats.generated_tokens == len(reply.tokens) < 20
    held = [model.open("x", max_tokens=1) for _ in range(8)]
    with pytest.raises(CapacityError, match="all 8 slots are open"):
        model.stream_chat(DOG, thinking=False)
    with pytest.raises(CapacityError, match="within 0.05 s"):
        model.chat(DOG, thinking=False, wait=0.05)
    closing = threading.Timer(0.1, held[0].close)
    closing.start()
    assert whole(model.stream_chat(DOG, thinking=False, max_tokens=3, wait=True)).finish_reason == "length"
    for handle in held:
        handle.close()


def test_results_of_several_come_as_they_end_and_one_that_fails_loses_no_other(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = len(encode_chat(model.tokenizer, TALKS[1], thinking=False).ids)
    want, step = model.chat(TALKS, thinking=False, max_tokens=6), model.desk.step

    def failing() -> bool:
        more = step()
        for slot in [s for s in list(model._slots) if s.reply_start == bad and s.tokens and not s.done]:
            slot.fail(NumericError("planted"))
        return more

    monkeypatch.setattr(model.desk, "step", failing)
    told: list[tuple[int, ChatReply]] = []
    made = model.chat(TALKS, thinking=False, max_tokens=6, on_result=lambda i, reply: told.append((i, reply)))
    assert [r.finish_reason for r in made] == [want[0].finish_reason, "error", want[2].finish_reason]
    assert (made[0].message, made[2].message) == (want[0].message, want[2].message)
    assert isinstance(made[1].error, NumericError) and made[1].tokens == want[1].tokens[: len(made[1].tokens)]
    assert sorted(i for i, _ in told) == [0, 1, 2] and all(made[i] is reply for i, reply in told)
    for call in (model.chat, lambda *a, **o: whole(model.stream_chat(*a, **o))):
        with pytest.raises(NumericError, match="planted"):
            call(TALKS[1], thinking=False, max_tokens=6)


@pytest.mark.parametrize(
    "options", [{"add_bos": False}, {"parse_special": True}, {"maximum": 3}, {"max_tokens": 0}, {"stop": [""]}]
)
def test_wrong_keywords_are_named_at_the_call(model: Model, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        model.stream_chat(DOG, **options)


def test_an_unknown_keyword_is_told_what_chat_takes(model: Model) -> None:
    """Its own list: what it refuses is not on it, what it alone takes is, and the nearest name is said."""
    wrong: dict[str, Any] = {"tool_choise": "none"}
    with pytest.raises(TypeError, match=r"unknown keyword tool_choise \(did you mean tool_choice\?\)") as caught:
        model.chat(DOG, **wrong)
    known = str(caught.value).split("known are ")[1].split(", ")
    assert {"thinking", "reasoning_effort", "response_format", "max_tokens", "draft"} <= set(known)
    assert not {"add_bos", "parse_special", "tool_choise"} & set(known)


def test_a_conversation_too_long_for_the_context_is_refused_at_the_call(model: Model) -> None:
    with pytest.raises(ValueError, match="context holds 4096"):
        model.stream_chat([{"role": "user", "content": "a b c d " * 1500}], thinking=False)


def test_without_max_tokens_a_reply_may_fill_the_context(model: Model) -> None:
    pieces = model.stream_chat(DOG, thinking=False)
    next(pieces)
    slot = model._engine.slots[0]
    assert len(slot.ids) - len(slot.tokens) + slot.params.max_tokens == model.max_context
    pieces.close()


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_stream_that_ends_early_frees_its_slot_at_once(model: Model, pieces: int) -> None:
    """Closed or dropped, also before its first piece."""
    made = model.stream_chat(DOG, thinking=False, max_tokens=40)
    assert len(list(itertools.islice(made, pieces))) == pieces and repr(model).endswith(" 1 slots open)")
    made.close()
    assert repr(model).endswith(" 0 slots open)") and next(made, None) is None
    for _ in itertools.islice(model.stream_chat(DOG, thinking=False, max_tokens=40), pieces):
        pass
    assert repr(model).endswith(" 0 slots open)")


def test_special_tokens_in_a_reply_are_no_content(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """What neither the parser nor the next turn reads is left out, unless it is asked for; spelled words stay."""
    text = "<think>hm</think>a<think>b<\uff5c\u2581pad\u2581\uff5c>c"
    reply = scripted(model, monkeypatch, text)
    assert (reply.reasoning, reply.content) == ("hm", "abc")
    shown = scripted(model, monkeypatch, text, skip_special_tokens=False)
    assert shown.content == "a<think>b<\uff5c\u2581pad\u2581\uff5c>c"
