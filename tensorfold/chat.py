"""Chat over a model: messages in, pieces and a ChatReply out; knows no template and no parsing of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorfold.engine.engine import Engine
from tensorfold.engine.reply import Stats, TokenLogprobs, token_sha
from tensorfold.engine.slot import Slot
from tensorfold.keywords import ChatKeywords, ConversationKeywords, TextKeywords, names, refuse_unknown
from tensorfold.requests import Request, prompt_progress
from tensorfold.text.chat import ASSISTANT, SYSTEM, USER, ChatPrompt, encode_chat, reply_detokenizer
from tensorfold.text.replies import ReplyParser, ToolCall

if TYPE_CHECKING:
    from tensorfold.handle import SlotHandle
    from tensorfold.model import Model
    from tensorfold.text.detokenizer import Detokenizer
    from tensorfold.text.tokenizer import Tokenizer

_LONGEST = {True: 65536, False: 8192}  # tokens of a reply by default, thinking or not
_LONGEST_MAX_EFFORT = 131072


@dataclass(frozen=True)
class ChatReply:
    """A finished reply.

    content, reasoning: texts, "" where there is none. tool_calls: in order. finish_reason:
    "tool_calls" if it calls, else
    stop, length or cancelled. stats: as in Generation. tokens: ids of the whole reply. seed: the one used. logprobs:
    one
    entry a token, if asked for.
    """

    content: str
    reasoning: str
    tool_calls: list[ToolCall]
    finish_reason: str
    stats: Stats
    tokens: list[int]
    seed: int
    logprobs: list[TokenLogprobs] | None = None

    @property
    def message(self) -> dict[str, Any]:
        """The reply as a message for the next turn's list."""
        made: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        if self.tool_calls:
            made["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.tool_calls
            ]
        return made


@dataclass(frozen=True)
class ChatPiece:
    """A piece of a streamed reply: what became certain of content and of reasoning;
    the last one holds the whole reply."""

    content: str
    reasoning: str
    reply: ChatReply | None = None


def stream_chat(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> Generator[ChatPiece]:
    """Checks everything at the call and opens the slot; the iterator then runs the rounds."""
    for name in sorted(names(TextKeywords) & set(options)):
        raise TypeError(f"chat takes no {name}: the conversation's encoding decides it")
    refuse_unknown(options, names(ChatKeywords))
    chosen = {k: v for k, v in options.items() if k in names(ConversationKeywords)}
    rest = {k: v for k, v in options.items() if k not in chosen}
    tokenizer = model.tokenizer
    prompt = encode_chat(tokenizer, messages, tools, **chosen)
    if rest.get("max_tokens") is None:
        longest = _LONGEST_MAX_EFFORT if prompt.thinking and prompt.effort == 100 else _LONGEST[prompt.thinking]
        rest["max_tokens"] = max(1, min(longest, model.max_context - len(prompt.ids)))
    request = model._one(prompt.ids, rest)
    parser = ReplyParser(prompt, request.params.stop)
    # in reasoning and in calls a stop string is text
    request = replace(request, params=replace(request.params, stop=()))
    handle = model._open_slot(lambda engine: _open(engine, request, prompt.shared))
    detokenizer = reply_detokenizer(tokenizer, request.params.skip_special_tokens)
    return _pieces(model, handle, prompt, parser, detokenizer, rest.get("prompt_progress_callback"))


def _open(engine: Engine, request: Request, shared: int) -> Slot:
    return engine.open(request.ids, request.params, request.max_drafts, passing=True, keep_at=(shared,))


def _guards(tokenizer: Tokenizer) -> set[int]:
    """Marks that no reply may hold: where one comes, the reply has ended."""
    marks = tokenizer.backend.marks
    return {tokenizer.bos_id} | {marks[name] for name in (SYSTEM, USER, ASSISTANT) if name in marks}


def _pieces(
    model: Model, handle: SlotHandle, prompt: ChatPrompt, parser: ReplyParser, detokenizer: Detokenizer, callback: Any
) -> Generator[ChatPiece]:
    guards, tokens, reason = _guards(model.tokenizer), list[int](), ""
    with handle:
        while not reason:
            if not handle.done:
                model.step()
            prompt_progress(callback, [handle.prompt_done], [len(prompt.ids)])
            done, new = handle.done, handle.tokens[len(tokens) :]
            if handle.error is not None:
                raise handle.error
            content = reasoning = ""
            for token in new:
                tokens.append(token)
                settled = ("", "") if token in guards else parser.feed(detokenizer.add(token))
                content, reasoning = content + settled[0], reasoning + settled[1]
                if token in guards or parser.stopped:
                    reason = "stop"  # accepted drafts behind it are no part of the reply
                    break
            if content or reasoning:
                yield ChatPiece(content, reasoning)
            if done and not reason:
                reason = handle.finish_reason or "stop"
    rest = ("", "") if parser.stopped else parser.feed(detokenizer.finish())
    last = parser.finish(cut=reason == "length")
    yield ChatPiece(rest[0] + last[0], rest[1] + last[1], _reply(handle, prompt, parser, tokens, reason))


def _reply(handle: SlotHandle, prompt: ChatPrompt, parser: ReplyParser, tokens: list[int], reason: str) -> ChatReply:
    stats = replace(handle.stats, generated_tokens=len(tokens), token_sha=token_sha(tokens))
    if reason != "cancelled":
        reason = parser.finish_reason or reason
    key = hashlib.sha256(np.asarray([*prompt.ids, *tokens], "<u4").tobytes()).hexdigest()[:16]
    logprobs = handle.logprobs
    return ChatReply(
        parser.content, parser.reasoning, parser.calls(key), reason, stats, tokens, handle.seed,
        None if logprobs is None else logprobs[: len(tokens)],
    )  # fmt: skip
