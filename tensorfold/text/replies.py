"""A chat reply's text into reasoning, content and calls, through DeepSeek's own parser; knows no ids and no model."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.text.chat import ChatPrompt, recipe

_CLOSE = "</\uff5cDSML\uff5c"
_INVOKE = re.compile(r'invoke name="([^"]*)"')
_PARAMETER = re.compile(r'parameter name="([^"]*)".*?(true|false)">(.*?)' + re.escape(_CLOSE), re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """A call that the model makes. arguments: JSON text of an object,
    or the beginning of one where the reply was cut."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, Any] | None:
        """The arguments as a dict, None where the reply was cut inside them."""
        found = _object(self.arguments)
        return found


class ReplyParser:
    """Takes a reply piece by piece; text that may yet become a mark or a stop string is held back.

    Malformed replies give what can be had: without </think> all is reasoning, text after the calls is lost,
    a cut call keeps
    its partial arguments, values that are no JSON become strings, and of equal names the last counts."""

    def __init__(self, prompt: ChatPrompt, stop: Sequence[str] = ()) -> None:
        library = recipe()
        self._library = library
        stages = library.ThinkingInitialStage
        stage = stages.ReasoningStart if prompt.thinking else None
        if prompt.continues is not None:
            stage = stages.ReasoningContinuation if prompt.continues == "reasoning" else stages.ContentContinuation
        options = library.ParsingOptions(
            parse_tool_calls=prompt.tools, starts_in_tool_calls=prompt.forced, thinking_initial_stage=stage,
            stop_sequences=list(stop),
        )  # fmt: skip
        generator = library.ChatCompletionRequest.chunk_generator(prompt.request, "", "")
        self._processor = library.StreamProcessor(generator, options)
        self._raw, self._calls = "", list[list[str]]()
        self.content = self.reasoning = ""
        self.finish_reason: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the content."""
        return bool(self._processor.finished)

    def feed(self, text: str) -> tuple[str, str]:
        """More of the reply; what it settles of content and of reasoning."""
        self._raw += text
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
        return [
            ToolCall(f"call_{i:02d}_{key}", name, _whole(arguments, self._raw, i))
            for i, (name, arguments) in enumerate(self._calls)
        ]

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
                    self._calls.append([function["name"], ""])
                self._calls[call["index"]][1] += function.get("arguments") or ""
            self.finish_reason = choice["finish_reason"] or self.finish_reason
        self.content += content
        self.reasoning += reasoning
        return content, reasoning


def _object(text: str, strict: bool = False) -> dict[str, Any] | None:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if strict and len(dict(items)) != len(items):
            raise ValueError("a name is given twice")
        return dict(items)

    try:
        found = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(arguments: str, raw: str, index: int) -> str:
    """Arguments as JSON: as they came if they are, read again from the reply's text if a closed call is malformed."""
    if _object(arguments, strict=True) is not None:
        return arguments
    read = _read_again(raw, index)
    return arguments if read is None else json.dumps(read, ensure_ascii=False)


def _read_again(raw: str, index: int) -> dict[str, Any] | None:
    """The parameters of call number `index`, None if it was never closed."""
    at = raw.find("\uff5cDSML\uff5c")
    for number in range(index + 1):
        name = _INVOKE.search(raw, max(at, 0))
        if name is None:
            return None
        found: dict[str, Any] = {}
        at = name.end()
        while True:
            end = raw.find(_CLOSE, at)
            if end < 0:
                return None
            parameter = _PARAMETER.search(raw, at)
            if parameter is None or parameter.start() > end:
                break
            key, is_text, value = parameter.groups()
            found[key] = value if is_text == "true" else _value(value)
            at = parameter.end()
        at = end + len(_CLOSE)
        if number == index:
            return found
    return None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
