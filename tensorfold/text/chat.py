"""OpenAI-style messages to ids, rendered by DeepSeek's own library; knows no model, no sampling and no replies.

Only what the protocol itself puts into a prompt becomes a mark; a caller's words stay text, whatever they spell.
The marks of grounding (boxes, points) in an assistant's own turn are the one exception, as in DeepSeek's library.
A mark that this tokenizer does not have is written as text.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from tensorfold.text.detokenizer import Detokenizer
from tensorfold.text.messages import effort_of, read_messages, read_tools, schema_of

SYSTEM, USER, ASSISTANT, EOS = (
    "<\uff5cSystem\uff5c>",
    "<\uff5cUser\uff5c>",
    "<\uff5cAssistant\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
THINK, THINK_END = "<think>", "</think>"
_GROUNDING = (f"<\uff5c{end}{kind}\uff5c>" for kind in ("ref", "box", "point", "polygon") for end in ("", "/"))
_READ = frozenset((THINK_END, "\uff5cDSML\uff5c", *_GROUNDING))  # by the reply's parser, or by the next turn's prompt
_LEAD = "Reasoning Effort: "
_STANDARD = 75  # what the library writes for "high"


class Words(Protocol):
    """What a rendered conversation needs of a tokenizer."""

    backend: Any
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]

    def encode(self, text: str, add_bos: bool = True, parse_special: bool | None = None) -> list[int]: ...
    def detokenizer(self, hidden: Container[int] | None = None) -> Detokenizer: ...


def recipe() -> ModuleType:
    """DeepSeek's library; ImportError naming the extra when it is missing."""
    try:
        import deepseek_recipe
    except ImportError as error:
        raise ImportError("chat needs deepseek-recipe: pip install 'tensorfold[chat]'") from error
    return deepseek_recipe


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation.

    ids: its tokens. text: the same as text, marks spelled out. request: DeepSeek's form of it, for the reply's parser.
    thinking, effort (1..100): what is on. tools: JSON schemas of the parameters of the tools that it shows, by name.
    continues: None, "reasoning" or "content" of a last message that goes on. forced: the prompt has opened a block of
    calls. shared: a length that the next turn's prompt will share beyond doubt.
    """

    ids: list[int]
    text: str
    request: Any
    thinking: bool
    effort: int
    tools: Mapping[str, Mapping[str, Any]]
    continues: str | None
    forced: bool
    shared: int


def encode_chat(
    tokenizer: Words,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: bool | None = None,
    reasoning_effort: int | str | None = None,
    tool_choice: str = "auto",
    response_format: Mapping[str, Any] | None = None,
    continue_final_message: bool = False,
    add_generation_prompt: bool = True,
    where: str = "messages",
) -> ChatPrompt:
    """The prompt of a conversation (docs/chat.md).

    messages: mappings with role (system, developer, user, assistant, tool), content (str, None or text parts), and for
    assistants reasoning_content and tool_calls, for tools tool_call_id. thinking: on unless False or effort "none".
    reasoning_effort: 1..100, minimal, low, medium, high, xhigh, max, ultra or none.
    tool_choice: auto, none or required. response_format: as OpenAI's, or a bare JSON schema.
    continue_final_message: the last message, an assistant's, goes on. where: what errors call `messages`.
    ValueError and TypeError name the message; images are refused, for this library runs the text model only.
    """
    library = recipe()
    effort, think = effort_of(reasoning_effort, thinking)
    read = read_messages(library, messages, continue_final_message, where)
    wanted = read_tools(library, tools)
    if tool_choice not in ("auto", "none", "required"):
        raise ValueError(f'tool_choice={tool_choice!r} must be "auto", "none" or "required"')
    forced = tool_choice == "required"
    if forced and (think or not wanted or continue_final_message or not add_generation_prompt):
        raise ValueError('tool_choice="required" needs tools, thinking=False and a prompt that opens a new turn')
    conversation = library.Conversation(
        read, thinking_mode=think, tools=wanted, tool_choice=tool_choice, reasoning_effort="high" if think else None,
        **schema_of(response_format),
    )  # fmt: skip
    pieces = _pieces(library.DeepseekV41Encoding().render_conversation(conversation))
    if think:
        lead = pieces[2][0]
        pieces[2] = (f"{_LEAD}{effort}" + lead.removeprefix(f"{_LEAD}{_STANDARD}"), False)
    last = read[-1]
    header = [(ASSISTANT, True), (THINK if think else THINK_END, True)]
    if last.role == "assistant" and not continue_final_message:
        if think and not last.content and not last.tool_calls:
            pieces.append((THINK_END, True))
        pieces += [(EOS, True), *(header if add_generation_prompt else [])]
    elif last.role != "assistant" and not add_generation_prompt:
        del pieces[-2:]
    shown = {} if tool_choice == "none" else {tool.name: tool.parameters for tool in wanted}
    ids = encode_pieces(tokenizer, pieces)
    opened = think and not shown and not continue_final_message and add_generation_prompt
    request = library.ConversationRequest(conversation, library.ModelVersion.DeepseekV41Flash)
    return ChatPrompt(
        ids, "".join(text for text, _ in pieces), request, think, effort, shown,
        _continued(last, think) if continue_final_message else None, forced, len(ids) - 1 if opened else len(ids),
    )  # fmt: skip


def encode_pieces(tokenizer: Words, pieces: Sequence[tuple[str, bool]]) -> list[int]:
    """Ids of (text, is a mark) in order; a mark that the tokenizer lacks joins the text around it."""
    words = partial(tokenizer.encode, add_bos=False, parse_special=False)
    ids: list[int] = []
    plain = ""
    for text, is_mark in pieces:
        mark = tokenizer.backend.marks.get(text) if is_mark else None
        if mark is None:
            plain += text
            continue
        ids += [*(words(plain) if plain else []), mark]
        plain = ""
    return ids + (words(plain) if plain else [])


def reply_detokenizer(tokenizer: Words, skip_special_tokens: bool) -> Detokenizer:
    """A decoder for a reply's parser: what neither it nor the next turn reads writes nothing, or only eos does not."""
    read = {i for mark, i in tokenizer.backend.marks.items() if mark in _READ}
    return tokenizer.detokenizer(tokenizer.special_ids - read if skip_special_tokens else tokenizer.eos_ids)


def _pieces(rendered: Any) -> list[tuple[str, bool]]:
    """The rendered prompt cut into marks and text."""
    prompt, pieces, at = rendered.prompt, [], 0  # the library copies the text each time it is asked for it
    for start, end in rendered.special_ranges:
        if start > at:
            pieces.append((prompt[at:start], False))
        pieces.append((prompt[start:end], True))
        at = end
    if at < len(prompt):
        pieces.append((prompt[at:], False))
    return pieces


def _continued(last: Any, think: bool) -> str:
    """Where a continued message stands: still inside its reasoning, or in its content."""
    return "reasoning" if think and not last.content and not last.tool_calls else "content"
