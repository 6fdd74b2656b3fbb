"""Chat over a model: messages in, pieces and a ChatReply out; knows no template and no parsing of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tensorfold.arguments import ParameterError
from tensorfold.engine.reply import Stats, TokenLogprobs, token_sha
from tensorfold.keywords import (
    ChatKeywords,
    ConversationKeywords,
    GenerateKeywords,
    StreamChatKeywords,
    TextKeywords,
    names,
    refuse_unknown,
)
from tensorfold.requests import Request
from tensorfold.results import Piece, cut, one_of
from tensorfold.rounds import Call, enter, held, opener, pieces, results
from tensorfold.text.chat import ASSISTANT, SYSTEM, USER, ChatPrompt, encode_chat, reply_detokenizer
from tensorfold.text.messages import conversations
from tensorfold.text.replies import ReplyParser, ToolCall

if TYPE_CHECKING:
    from tensorfold.desk import Desk
    from tensorfold.handle import SlotHandle
    from tensorfold.text.tokenizer import Tokenizer

_LONGEST = {True: 65536, False: 8192}  # tokens of a reply by default, thinking or not
_LONGEST_MAX_EFFORT = 131072


@dataclass(frozen=True, repr=False)
class ChatReply:
    """A finished reply.

    content, reasoning: texts, "" where there is none. tool_calls: in order. finish_reason: "tool_calls" if it calls,
    else stop, length, cancelled or error. stats: as in Generation. tokens: ids of the whole reply. seed: the one used.
    logprobs: one entry a token, if asked for. error: what ended it with "error".
    """

    content: str
    reasoning: str
    tool_calls: list[ToolCall]
    finish_reason: str
    stats: Stats
    tokens: list[int]
    seed: int
    logprobs: list[TokenLogprobs] | None = None
    error: Exception | None = None

    def __repr__(self) -> str:
        reasoning = f"reasoning {cut(self.reasoning, 30)}, " if self.reasoning else ""
        calls = "".join(f"{call.name}(...), " for call in self.tool_calls[:3])
        said = f"{cut(self.content)}, {reasoning}{calls}{len(self.tokens)} tokens, {self.finish_reason}"
        return f"ChatReply({said}, seed={self.seed})"

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


def chat(
    desk: Desk, messages: Any, tools: Any, options: Mapping[str, Any], n: SupportsIndex | None
) -> ChatReply | list[ChatReply]:
    """The reply to one conversation, or a list of replies to several and for `n`; more than there are slots queue."""
    turns, many = _turns(desk, messages, tools, options, ChatKeywords, n)

    def made(i: int, handle: SlotHandle, came: Piece) -> ChatReply | None:
        return turns[i].take(handle, came).reply

    requests = [turn.request for turn in turns]
    replies = results(desk, requests, Call.of(options, None), made, options.get("on_result"))
    return replies if many else one_of(replies)


def stream_chat(desk: Desk, messages: Any, tools: Any, options: Mapping[str, Any]) -> Generator[ChatPiece]:
    """Checks everything at the call and opens the slot; the iterator then runs the rounds."""
    (turn, *_), many = _turns(desk, messages, tools, options, StreamChatKeywords)
    if many:
        raise ValueError("stream_chat takes one conversation, not a list of them: stream each, or use chat")
    call = Call.of(options)
    handle = enter(desk, opener(turn.request, call), call)
    return held(handle, _pieces(desk, turn, handle, call))


def _pieces(desk: Desk, turn: _Turn, handle: SlotHandle, call: Call) -> Generator[ChatPiece]:
    with closing(pieces(desk, handle, call)) as gains:
        for came in gains:
            piece = turn.take(handle, came)
            if piece.content or piece.reasoning or piece.reply:
                yield piece
            if piece.reply:
                return


def _turns(
    desk: Desk,
    messages: Any,
    tools: Any,
    options: Mapping[str, Any],
    kind: type,
    n: SupportsIndex | None = None,
) -> tuple[list[_Turn], bool]:
    """A turn for each reply in order, and whether a list is wanted; all arguments are checked."""
    for name in sorted(names(TextKeywords) & set(options)):
        raise TypeError(f"chat takes no {name}: the conversation's encoding decides it")
    refuse_unknown(options, names(kind))
    chosen = {k: v for k, v in options.items() if k in names(ConversationKeywords)}
    rest = {k: v for k, v in options.items() if k not in chosen}
    given, many = conversations(messages)
    prompts = [encode_chat(desk.tokenizer, each, tools, **chosen, where=where) for where, each in given]
    ids = [prompt.ids for prompt in prompts]
    whole = rest.get("max_tokens") is None
    if whole:
        rest["max_tokens"] = _LONGEST_MAX_EFFORT  # until each turn has its own
    requests, many = desk.reader.requests(ids if many else ids[0], rest, n, GenerateKeywords)
    copies = len(requests) // len(prompts)
    turns = [_Turn(desk, prompts[i // copies], request, whole) for i, request in enumerate(requests)]
    desk.fit([turn.request for turn in turns])
    return turns, many


class _Turn:
    """A reply in the making: takes what a slot has said and gives what that settles.

    request: what its slot is opened for.
    """

    def __init__(self, desk: Desk, prompt: ChatPrompt, request: Request, whole: bool):
        """whole: max_tokens is what a reply of this kind may need, within the context."""
        tokenizer, params = desk.tokenizer, request.params
        self._prompt, self._parser = prompt, ReplyParser(prompt, params.stop)
        self._detokenizer = reply_detokenizer(tokenizer, params.skip_special_tokens)
        self._ends, self._tokens = _guards(tokenizer) | set(params.stop_token_ids), list[int]()
        if params.min_tokens and params.stop:
            raise ParameterError("chat takes min_tokens or stop, not both: stop counts in the content alone")
        if whole:
            longest = _LONGEST_MAX_EFFORT if prompt.thinking and prompt.effort == 100 else _LONGEST[prompt.thinking]
            params = replace(params, max_tokens=max(1, min(longest, desk.max_context - len(prompt.ids))))
            if params.min_tokens > params.max_tokens:
                raise ParameterError(f"min_tokens={params.min_tokens} is more than this reply's {params.max_tokens}")
        # in reasoning and in calls a stop string is text
        params = replace(params, stop=(), stop_token_ids=tuple(sorted(self._ends)))
        self.request = replace(request, params=params, keep_at=(prompt.shared,))

    def take(self, handle: SlotHandle, came: Piece) -> ChatPiece:
        """What the handle's newest piece settles; at the end the handle is closed, and there is the reply."""
        reply, reason, settled = None, came.finish_reason, [("", "")]
        for token in came.tokens:
            self._tokens.append(token)
            if token not in self._ends:
                settled.append(self._parser.feed(self._detokenizer.add(token)))
            if self._parser.stopped:
                reason = "stop"  # accepted drafts behind it are no part of the reply
                break
        if reason is not None:
            handle.close()
            if not self._parser.stopped:
                settled.append(self._parser.feed(self._detokenizer.finish()))
            settled.append(self._parser.finish(cut=reason == "length"))
            reply = self._made(handle, reason)
        contents, reasonings = zip(*settled)
        return ChatPiece("".join(contents), "".join(reasonings), reply)

    def _made(self, handle: SlotHandle, reason: str) -> ChatReply:
        parser, tokens, logprobs = self._parser, self._tokens, handle.logprobs
        stats = replace(handle.stats, generated_tokens=len(tokens), token_sha=token_sha(tokens))
        if reason not in ("cancelled", "error"):
            reason = parser.finish_reason or reason
        key = hashlib.sha256(np.asarray([*self._prompt.ids, *tokens], "<u4").tobytes()).hexdigest()[:16]
        return ChatReply(
            parser.content, parser.reasoning, parser.calls(key), reason, stats, tokens, handle.seed,
            None if logprobs is None else logprobs[: len(tokens)], handle.error,
        )  # fmt: skip


def _guards(tokenizer: Tokenizer) -> set[int]:
    """Marks that no reply may hold: where one comes, the reply has ended."""
    marks = tokenizer.backend.marks
    return {tokenizer.bos_id} | {marks[name] for name in (SYSTEM, USER, ASSISTANT) if name in marks}
