"""A chat reply's text into reasoning, content and calls, through DeepSeek's own parser; knows no ids and no model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.text.chat import ChatPrompt, recipe

_CLOSE = "</\uff5cDSML\uff5c"
_INVOKE = re.compile(r'invoke name="([^"]*)"')
_PARAMETER_NAME = 'parameter name="'
_PARAMETER = re.compile(_PARAMETER_NAME + r'([^"]*)".*?(true|false)">(.*?)' + re.escape(_CLOSE), re.DOTALL)
_WRAPPER = "arguments"


@dataclass(frozen=True)
class ToolCall:
    """A call that the model makes. arguments: JSON text of an object,
    or the beginning of one where the reply was cut."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, Any] | None:
        """The arguments as a dict, None where the reply was cut inside them."""
        return _object(self.arguments)


class ReplyParser:
    """Takes a reply piece by piece; text that may yet become a mark or a stop string is held back.

    Malformed replies give what can be had: without </think> all is reasoning, text after the calls is lost,
    a cut call keeps its partial arguments, values that are no JSON become strings, of equal names the last counts, and
    arguments wrapped in an "arguments" that the tool does not take come out of it."""

    def __init__(self, prompt: ChatPrompt, stop: Sequence[str] = ()) -> None:
        library = recipe()
        self._library = library
        stages = library.ThinkingInitialStage
        stage = stages.ReasoningStart if prompt.thinking else None
        if prompt.continues is not None:
            stage = stages.ReasoningContinuation if prompt.continues == "reasoning" else stages.ContentContinuation
        options = library.ParsingOptions(
            parse_tool_calls=bool(prompt.tools), starts_in_tool_calls=prompt.forced, thinking_initial_stage=stage,
            stop_sequences=list(stop),
        )  # fmt: skip
        generator = library.ChatCompletionRequest.chunk_generator(prompt.request, "", "")
        self._processor = library.StreamProcessor(generator, options)
        self._schemas = prompt.tools
        self._raw, self._content, self._reasoning = list[str](), list[str](), list[str]()
        self._calls: list[tuple[str, list[str]]] = []
        self.finish_reason: str | None = None

    @property
    def content(self) -> str:
        """The content so far."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the content."""
        return bool(self._processor.finished)

    def feed(self, text: str) -> tuple[str, str]:
        """More of the reply; what it settles of content and of reasoning."""
        self._raw.append(text)
        return self._take(self._processor.push(self._library.InferenceChunk.text(text))) if text else ("", "")

    def finish(self, cut: bool) -> tuple[str, str]:
        """The end, cut for length or not; what was still held back."""
        if self._processor.finished:
            return "", ""
        reasons = self._library.InferenceFinishReason
        chunk = self._library.InferenceChunk.finish(reasons.Length if cut else reasons.Stop)
        return self._take([*self._processor.push(chunk), *self._processor.finish()])

    def calls(self, key: str) -> list[ToolCall]:
        """The calls so far; `key` makes their ids unlike those of other replies."""
        made: list[ToolCall] = []
        again: list[dict[str, Any]] | None = None
        for i, (name, parts) in enumerate(self._calls):
            arguments = "".join(parts)
            if _object(arguments, strict=True) is None:
                again = _read_again("".join(self._raw)) if again is None else again
                if i < len(again):  # closed, but malformed
                    arguments = json.dumps(again[i], ensure_ascii=False)
            if name in self._schemas:
                arguments = _unwrapped(arguments, self._schemas[name])
            made.append(ToolCall(f"call_{i:02d}_{key}", name, arguments))
        return made

    def _take(self, chunks: Sequence[Any]) -> tuple[str, str]:
        content = reasoning = ""
        for chunk in chunks:
            choice = json.loads(chunk.to_json())["choices"][0]
            delta = choice["delta"]
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                function = call["function"]
                if "name" in function:
                    self._calls.append((function["name"], []))
                self._calls[call["index"]][1].append(function.get("arguments") or "")
            self.finish_reason = choice["finish_reason"] or self.finish_reason
        self._content.append(content)
        self._reasoning.append(reasoning)
        return content, reasoning


def _object(text: str, strict: bool = False) -> dict[str, Any] | None:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if strict and len(dict(items)) != len(items):
            raise ValueError("a name is given twice")
        return dict(items)

    try:
        found = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _read_again(raw: str) -> list[dict[str, Any]]:
    """The parameters of each closed call in the text of a reply."""
    calls: list[dict[str, Any]] = []
    at = max(raw.find("\uff5cDSML\uff5c"), 0)
    while (name := _INVOKE.search(raw, at)) is not None:
        found: dict[str, Any] = {}
        at = name.end()
        while (end := raw.find(_CLOSE, at)) >= 0:
            begin = raw.find(_PARAMETER_NAME, at, end)
            parameter = _PARAMETER.match(raw, begin) if begin >= 0 else None
            if parameter is None:
                break
            key, is_text, value = parameter.groups()
            found[key] = value if is_text == "true" else _value(value)
            at = parameter.end()
        if end < 0:
            break
        calls.append(found)
        at = end + len(_CLOSE)
    return calls


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _unwrapped(arguments: str, schema: Mapping[str, Any]) -> str:
    """Arguments that stand alone inside an "arguments" of their own, which the tool does not take, without it."""
    found = _object(arguments)
    while found is not None and list(found) == [_WRAPPER] and not _declares(schema, _WRAPPER):
        inner = found[_WRAPPER]
        text = inner if isinstance(inner, str) else arguments[arguments.index(":") + 1 : arguments.rindex("}")].strip()
        found = _object(text)
        if found is not None:
            arguments = text if _object(text, strict=True) is not None else json.dumps(found, ensure_ascii=False)
    return arguments


def _declares(schema: Any, name: str) -> bool:
    """Whether a JSON schema of an object may have a property of this name, in any of its alternatives."""
    if not isinstance(schema, Mapping):
        return False
    properties = schema.get("properties")
    if "$ref" in schema or (isinstance(properties, Mapping) and name in properties):
        return True
    alternatives = [schema.get(key) for key in ("allOf", "anyOf", "oneOf")]
    return any(_declares(part, name) for parts in alternatives if isinstance(parts, list) for part in parts)
