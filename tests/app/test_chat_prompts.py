"""Conversations to prompts: the worked examples (docs/chat.md#examples), and what callers may not do."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tensorfold import ModelConfig
from tensorfold.text import chat
from tensorfold.text.chat import encode_chat
from tensorfold.text.tokenizer import Tokenizer
from tests.support.goldens import DATA, EXAMPLE

pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
VECTORS = json.loads((DATA / "chat" / "vectors.json").read_text(encoding="utf-8"))
TOKENIZER = Tokenizer.from_folder(EXAMPLE, ModelConfig.from_folder(EXAMPLE))
WEATHER = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def user(text: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(arguments: Any, name: str = "f") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}],
    }


def text(messages: list[Any], **options: Any) -> str:
    return encode_chat(TOKENIZER, messages, **options).text


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"][:2] for v in VECTORS])
def test_worked_example(vector: dict[str, Any]) -> None:
    names = ("thinking", "reasoning_effort", "add_generation_prompt", "continue_final_message")
    options = {name: vector["options"][name] for name in names}
    options["response_format"] = vector["response_format"]
    prompt = encode_chat(TOKENIZER, vector["messages"], vector["tools"], **options)
    assert prompt.text == vector["expected"]
    assert prompt.ids == TOKENIZER.encode(vector["expected"], parse_special=True)


def test_a_callers_words_never_become_marks() -> None:
    def conversation(words: str) -> list[int]:
        tool = {"type": "function", "function": {"name": "f", "description": words, "parameters": {"a": words}}}
        messages = [
            {"role": "system", "content": words}, user(words),
            {**call({"k": words}), "reasoning_content": words, "content": words},
            {"role": "tool", "tool_call_id": "c", "content": words}, user([{"type": "text", "text": words}]),
        ]  # fmt: skip
        ids = encode_chat(TOKENIZER, messages, [tool], response_format={"x": words}).ids
        return [i for i in ids if i in marks]

    marks = set(TOKENIZER.backend.marks.values())
    harmless = conversation("words")
    assert len(harmless) > 8
    for mark in TOKENIZER.backend.marks:
        assert conversation(f"a{mark}b {mark}") == harmless, mark


def test_a_mark_is_its_id_and_the_text_around_it_is_encoded_on_its_own() -> None:
    ids = encode_chat(TOKENIZER, [user("define: dog")], thinking=False).ids
    marks = TOKENIZER.backend.marks
    want = [
        0,
        marks["<\uff5cUser\uff5c>"],
        *TOKENIZER.encode("define: dog", add_bos=False),
        marks["<\uff5cAssistant\uff5c>"],
    ]
    assert ids == [*want, marks["</think>"]]


@pytest.mark.parametrize(
    "effort,number", [("minimal", 50), ("medium", 75), ("xhigh", 75), ("ultra", 100), (1, 1), (100, 100)]
)
def test_effort_names(effort: Any, number: int) -> None:
    assert f"Reasoning Effort: {number} (range" in text([user()], reasoning_effort=effort)


def test_effort_none_turns_thinking_off() -> None:
    assert text([user()], reasoning_effort="none") == text([user()], thinking=False)


def test_a_system_text_that_looks_like_the_lead_is_left_alone() -> None:
    words = "Reasoning Effort: 75 (range"
    assert text([{"role": "system", "content": words}, user()], thinking=False).count(words) == 1
    made = text([{"role": "system", "content": words}, user()], reasoning_effort=3)
    assert made.count(words) == 1 and "Effort: 3 (range" in made


def test_arguments_in_every_form() -> None:
    plain = text([user(), call('{"a": [1, "\u4eac"]}')], add_generation_prompt=False, thinking=False)
    for form in ({"a": [1, "\u4eac"]}, json.dumps('{"a": [1, "\u4eac"]}')):
        assert text([user(), call(form)], add_generation_prompt=False, thinking=False) == plain
    assert 'parameter name="arguments" string="true">no json<' in text([user(), call("no json")], thinking=False)
    assert 'parameter name="arguments" string="false">[1]<' in text([user(), call([1])], thinking=False)


def test_developer_is_system_and_a_finished_last_turn_gets_a_header() -> None:
    assert text([{"role": "developer", "content": "x"}, user()]) == text([{"role": "system", "content": "x"}, user()])
    answer = {"role": "assistant", "content": "Hi!", "reasoning": "Greet."}
    end = "<think>Greet.</think>Hi!<\uff5cend\u2581of\u2581sentence\uff5c><\uff5cAssistant\uff5c><think>"
    assert text([user(), answer]).endswith(end)
    assert text(
        [user(), {"role": "assistant", "content": "", "reasoning_content": "r"}], add_generation_prompt=False
    ).endswith("<think>r</think><\uff5cend\u2581of\u2581sentence\uff5c>")


def test_required_opens_a_block_and_none_hides_the_tools() -> None:
    made = text([user()], tools=[WEATHER], tool_choice="required", thinking=False)
    assert made.endswith("</think>\n\n<\uff5cDSML\uff5c calls>\n")
    assert text([user()], tools=[WEATHER], tool_choice="none") == text([user()])


def test_other_parts_of_a_tool_result_are_named() -> None:
    made = text(
        [
            user(),
            call("{}"),
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "audio"}, {"type": "text", "text": "t"}]},
        ]
    )
    assert "<tool_result>[Unsupported audio]\n\nt</tool_result>" in made


@pytest.mark.parametrize(
    "messages,options,error,message",
    [
        ("hi", {}, TypeError, "messages must be a list"),
        ([], {}, ValueError, "messages is empty"),
        (["hi"], {}, TypeError, "messages[0] must be a mapping"),
        ([user(), {"role": "robot", "content": ""}], {}, ValueError, "messages[1] has role 'robot'"),
        ([user(3)], {}, TypeError, "messages[0].content must be a str"),
        ([user("\ud800")], {}, ValueError, "lone surrogate"),
        ([user([{"type": "image_url", "image_url": "x"}])], {}, ValueError, "messages[0].content[0] is an image"),
        ([user([{"type": "video"}])], {}, ValueError, "messages[0].content[0] must be"),
        ([user(["x"])], {}, ValueError, "messages[0].content[0] must be"),
        ([{**user(), "tool_calls": [1]}], {}, ValueError, "only assistants call"),
        ([user(), {"role": "assistant", "tool_calls": ["x"]}], {}, TypeError, "messages[1].tool_calls[0]"),
        ([user(), call("{}", 'a"b')], {}, ValueError, "holds no quote"),
        ([user(), call({'a"': 1})], {}, ValueError, "holds no quote"),
        ([user(), call({"a": {1}})], {}, TypeError, "is no JSON"),
        ([user()], {"continue_final_message": True}, ValueError, "the last message is by the user"),
        ([user()], {"thinking": 1}, TypeError, "thinking=1"),
        ([user()], {"reasoning_effort": True}, TypeError, "reasoning_effort=True"),
        ([user()], {"reasoning_effort": 0}, ValueError, "reasoning_effort=0"),
        ([user()], {"reasoning_effort": 101}, ValueError, "reasoning_effort=101"),
        ([user()], {"reasoning_effort": 1.0}, TypeError, "reasoning_effort=1.0"),
        ([user()], {"reasoning_effort": "much"}, ValueError, "reasoning_effort='much'"),
        ([user()], {"reasoning_effort": "none", "thinking": True}, ValueError, "choose one"),
        ([user()], {"tools": {"a": 1}}, TypeError, "tools must be a list"),
        ([user()], {"tools": [{"name": "f"}]}, TypeError, "tools[0] must be"),
        (
            [user()],
            {"tools": [{"function": {"name": "f", "parameters": 3}}]},
            TypeError,
            "tools[0].function.parameters",
        ),
        ([user()], {"tools": [{"namespace": "a", "function": {"name": "b::f"}}]}, ValueError, "contradict each other"),
        ([user()], {"tools": [{"function": {"name": "a::b::f"}}]}, ValueError, "contradict each other"),
        ([user()], {"tool_choice": "maybe"}, ValueError, "tool_choice='maybe'"),
        ([user()], {"tool_choice": "required", "thinking": False}, ValueError, "needs tools"),
        ([user()], {"tool_choice": "required", "tools": [WEATHER]}, ValueError, "thinking=False"),
        ([user()], {"response_format": "json"}, TypeError, "response_format must be a mapping"),
        ([user()], {"response_format": {"type": "json_schema"}}, ValueError, "json_schema"),
        ([user()], {"response_format": {"type": "yaml"}}, ValueError, "response_format has the type 'yaml'"),
        ([user()], {"response_format": {"type": ["object", "xml"]}}, ValueError, "has the type ['object', 'xml']"),
        ([user()], {"response_format": {"type": 3}}, ValueError, "has the type 3"),
    ],
)
def test_what_is_wrong_is_named(messages: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        encode_chat(TOKENIZER, messages, **options)
    assert message in str(caught.value)


def test_a_bare_schema_of_any_json_type_is_taken() -> None:
    for schema in ({"type": ["object", "null"]}, {"type": "array"}, {"anyOf": []}):
        assert json.dumps(schema) in text([user()], response_format=schema)


def test_the_work_of_encoding_grows_with_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters copied out of the library and handed to the tokenizer: never more than the prompt has."""
    library, copied = chat.recipe(), []

    class Rendered:
        def __init__(self, real: Any):
            self._real, self.special_ranges = real, real.special_ranges

        @property
        def prompt(self) -> str:
            copied.append(len(self._real.prompt))
            return str(self._real.prompt)

    class Encoding:
        def render_conversation(self, conversation: Any) -> Rendered:
            return Rendered(library.DeepseekV41Encoding().render_conversation(conversation))

    class Library:
        DeepseekV41Encoding = Encoding

        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

    encode = TOKENIZER.encode
    monkeypatch.setattr(chat, "recipe", Library)
    monkeypatch.setattr(TOKENIZER, "encode", lambda text, **k: copied.append(len(text)) or encode(text, **k))
    for turns in (1, 40):
        copied.clear()
        prompt = encode_chat(TOKENIZER, [m for i in range(turns) for m in (user(f"q{i}"), call({"a": i}))] + [user()])
        assert sum(copied) <= 2 * len(prompt.text)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepseek_recipe", None)
    with pytest.raises(ImportError, match=r"tensorfold\[chat\]"):
        encode_chat(TOKENIZER, [user()])
