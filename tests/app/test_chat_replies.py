"""Reply texts to reasoning, content and calls: ordinary, malformed and cut ones, in pieces of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold import ModelConfig
from tensorfold.text import replies
from tensorfold.text.chat import encode_chat
from tensorfold.text.replies import ReplyParser
from tensorfold.text.tokenizer import Tokenizer
from tests.support.goldens import EXAMPLE

pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
TOKENIZER = Tokenizer.from_folder(EXAMPLE, ModelConfig.from_folder(EXAMPLE))
TOOLS = [{"type": "function", "function": {"name": "f"}}]
D = "\uff5cDSML\uff5c"


def parameter(name: str, value: str, is_text: bool = False) -> str:
    return f'<{D} parameter name="{name}" string="{"true" if is_text else "false"}">{value}</{D} parameter>\n'


def block(*calls: tuple[str, str]) -> str:
    inner = "\n".join(f'<{D} invoke name="{name}">\n{inside}</{D} invoke>' for name, inside in calls)
    return f"\n\n<{D} calls>\n{inner}\n</{D} calls>"


def parse(
    reply: str, size: int, cut: bool = False, stop: tuple[str, ...] = (), last: str | None = None, **options: Any
) -> tuple[str, str, list[Any], str | None]:
    options = {"thinking": False, "tools": TOOLS, **options}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    if last is not None:
        messages.append({"role": "assistant", "content": last})
    parser = ReplyParser(encode_chat(TOKENIZER, messages, continue_final_message=last is not None, **options), stop)
    streamed = ["", ""]
    for at in range(0, len(reply), size):
        if parser.stopped:
            break
        for i, piece in enumerate(parser.feed(reply[at : at + size])):
            streamed[i] += piece
    for i, piece in enumerate(parser.finish(cut)):
        streamed[i] += piece
    assert streamed == [parser.content, parser.reasoning]
    calls = [(c.name, c.arguments, c.parsed()) for c in parser.calls("k")]
    return parser.reasoning, parser.content, calls, parser.finish_reason


WHOLE = block(("f", parameter("s", 'a "q"\n<x>', True) + parameter("n", "2")), ("g", ""))
NONE: tuple[str, str, dict[str, Any]] = ("g", "{}", {})
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, str, list[Any], str]]] = {
    "content": ("\nHello.", {}, ("", "Hello.", [], "stop")),
    "thought": ("\nhm\n</think>\n\nHello.", {"thinking": True}, ("hm", "Hello.", [], "stop")),
    "thought without end": ("hm", {"thinking": True}, ("hm", "", [], "stop")),
    "a second end of thought": ("hm</think>a</think>b", {"thinking": True}, ("hm", "ab", [], "stop")),
    "calls": (
        "Text" + WHOLE, {},
        ("", "Text", [("f", '{"s": "a \\"q\\"\\n<x>", "n": 2}', {"s": 'a "q"\n<x>', "n": 2}), NONE], "tool_calls"),
    ),
    "calls without end of thought": ("hm" + block(("g", "")), {"thinking": True}, ("hm", "", [NONE], "tool_calls")),
    "text behind calls is lost": ("a" + block(("f", "")) + "b", {}, ("", "a", [("f", "{}", {})], "tool_calls")),
    "no tools, no calls": ("a" + block(("f", "")), {"tools": None}, ("", "a" + block(("f", "")), [], "stop")),
    "a value that is no JSON": (
        block(("g", parameter("x", "1")), ("f", parameter("n", "abc") + parameter("m", "[1]"))), {},
        ("", "", [("g", '{"x": 1}', {"x": 1}), ("f", '{"n": "abc", "m": [1]}', {"n": "abc", "m": [1]})], "tool_calls"),
    ),
    "a value that JSON lacks": (
        block(("f", parameter("n", "NaN") + parameter("m", "-Infinity"))), {},
        ("", "", [("f", '{"n": "NaN", "m": "-Infinity"}', {"n": "NaN", "m": "-Infinity"})], "tool_calls"),
    ),
    "a name twice": (
        block(("f", parameter("n", "1") + parameter("n", "2"))), {},
        ("", "", [("f", '{"n": 2}', {"n": 2})], "tool_calls"),
    ),
    "cut in a value": (
        f'a\n\n<{D} calls>\n<{D} invoke name="f">\n<{D} parameter name="c" string="true">Par', {"cut": True},
        ("", "a", [("f", '{"c": "Par', None)], "length"),
    ),
    "cut in a name": (f'a\n\n<{D} calls>\n<{D} invoke name="f', {"cut": True}, ("", "a", [], "length")),
    "cut in a mark": (f"A\n\n<{D[:4]}", {"cut": True}, ("", f"A\n\n<{D[:4]}", [], "length")),
    "cut after calls": ("a" + block(("f", "")), {"cut": True}, ("", "a", [("f", "{}", {})], "length")),
    "stop string": ("one STOP two", {"stop": ("STOP",)}, ("", "one ", [], "stop")),
    "stop string in thought": (
        "a STOP b</think>c STOP", {"thinking": True, "stop": ("STOP",)}, ("a STOP b", "c ", [], "stop"),
    ),
    "continued content": ("\n more", {"last": "The answer"}, ("", "\n more", [], "stop")),
    "continued thought": (
        "\nmore</think>Hi", {"last": "", "thinking": True}, ("\nmore", "Hi", [], "stop")
    ),
    "empty": ("", {}, ("", "", [], "stop")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_reply(name: str, size: int) -> None:
    reply, options, want = CASES[name]
    assert parse(reply, size, **options) == want


CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
OWN: dict[str, Any] = {"type": "object", "properties": {"arguments": {"type": "object"}}}
INNER = '{"city": "Paris", "n": 1.50}'


@pytest.mark.parametrize(
    "schema,inside,want",
    [
        (CITY, parameter("arguments", INNER), INNER),
        (CITY, parameter("arguments", INNER, True), INNER),
        (None, parameter("arguments", INNER), INNER),
        (CITY, parameter("arguments", '{"arguments": ' + INNER + "}"), INNER),
        (CITY, parameter("arguments", '{"city": 1, "city": 2}'), '{"city": 2}'),
        (OWN, parameter("arguments", INNER), '{"arguments": ' + INNER + "}"),
        ({"anyOf": [CITY, OWN]}, parameter("arguments", INNER), '{"arguments": ' + INNER + "}"),
        ({"$ref": "#/$defs/own"}, parameter("arguments", INNER), '{"arguments": ' + INNER + "}"),
        (
            CITY, parameter("arguments", INNER) + parameter("city", "Rome", True),
            '{"arguments": ' + INNER + ', "city": "Rome"}',
        ),
        (CITY, parameter("arguments", "Paris", True), '{"arguments": "Paris"}'),
        (CITY, parameter("arguments", "[1]"), '{"arguments": [1]}'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 1000])
def test_arguments_inside_an_arguments_that_the_tool_lacks_come_out(
    schema: dict[str, Any] | None, inside: str, want: str, size: int
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    _, _, [(_, arguments, parsed)], _ = parse(block(("f", inside)), size, tools=tools)
    assert (arguments, parsed) == (want, json.loads(want))


def test_a_cut_wrapper_and_a_call_of_an_unknown_tool() -> None:
    cut = f'\n\n<{D} calls>\n<{D} invoke name="f">\n<{D} parameter name="arguments" string="false">{{"c": 1'
    assert parse(cut, 3, cut=True)[2] == [("f", '{"arguments": {"c": 1', None)]
    unknown = block(("h", parameter("arguments", INNER)))
    assert parse(unknown, 3)[2] == [("h", '{"arguments": ' + INNER + "}", {"arguments": json.loads(INNER)})]


def test_many_malformed_calls_are_read_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    again = replies._read_again
    monkeypatch.setattr(replies, "_read_again", lambda raw: read.append(len(raw)) or again(raw))
    _, _, calls, _ = parse(block(*[("f", parameter("n", f"abc{i}")) for i in range(20)]), 1000)
    assert [parsed for _, _, parsed in calls] == [{"n": f"abc{i}"} for i in range(20)] and len(read) == 1


def test_required_calls_begin_inside_the_block() -> None:
    reply = f'<{D} invoke name="f">\n{parameter("n", "1")}</{D} invoke>\n</{D} calls>'
    assert parse(reply, 2, tool_choice="required") == ("", "", [("f", '{"n": 1}', {"n": 1})], "tool_calls")


def test_ids_tell_calls_apart() -> None:
    parser = ReplyParser(encode_chat(TOKENIZER, [{"role": "user", "content": "hi"}], TOOLS, False))
    parser.feed(WHOLE)
    parser.finish(False)
    assert [c.id for c in parser.calls("key")] == ["call_00_key", "call_01_key"]
