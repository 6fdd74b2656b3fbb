"""The keywords of load, generate, stream, open, extend and chat, and the forms of a prompt, as types. Checks no value.

The names that are taken follow from these types, so that what a type checker knows and what a call takes are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict


class Integers(Protocol):
    """Ids or seeds in an array, numpy's or MLX's: of one dimension one prompt, of two as many as it has rows."""

    @property
    def ndim(self) -> int: ...

    def tolist(self) -> Any: ...


class Cancel(Protocol):
    """What ends a call: a threading.Event, or what tells as it does whether it is set."""

    def is_set(self) -> bool: ...


Prompt: TypeAlias = "str | Sequence[SupportsIndex]"
OnePrompt: TypeAlias = "Prompt | Integers"
Prompts: TypeAlias = "Sequence[OnePrompt]"
AnyPrompt: TypeAlias = "OnePrompt | Prompts"

Messages: TypeAlias = "Sequence[Mapping[str, Any]]"
Conversations: TypeAlias = "Sequence[Messages]"
Tools: TypeAlias = "Sequence[Mapping[str, Any]] | None"


class LoadKeywords(TypedDict, total=False):
    """What Model.load takes beside a path."""

    draft: bool | None
    max_slots: int
    max_context: int | None
    backend: str | None
    prefix_bytes: int
    snapshot_tokens: int
    draft_policy: str
    engram: str
    experts: str
    expert_bytes: int | None
    revision: str | None
    token: str | bool | None
    cache_dir: str | Path | None
    progress: bool | None


class SamplingKeywords(TypedDict, total=False):
    """How a reply is drawn and where it ends; None is the default of each."""

    max_tokens: SupportsIndex | None
    temperature: SupportsFloat | None
    temp: SupportsFloat | None
    top_p: SupportsFloat | None
    top_k: SupportsIndex | None
    min_p: SupportsFloat | None
    repetition_penalty: SupportsFloat | None
    presence_penalty: SupportsFloat | None
    frequency_penalty: SupportsFloat | None
    logit_bias: Mapping[int, float] | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[SupportsIndex] | Integers | None
    ignore_eos: bool | None
    min_tokens: SupportsIndex | None
    seed: SupportsIndex | Sequence[SupportsIndex] | Integers | None
    logprobs: SupportsIndex | None
    skip_special_tokens: bool | None


class ReplyKeywords(SamplingKeywords, total=False):
    """What every call that makes a reply takes."""

    draft: bool | None
    max_drafts: SupportsIndex | None
    prompt_progress_callback: Callable[[int, int], Any] | None


class TextKeywords(TypedDict, total=False):
    """How text becomes ids."""

    add_bos: bool | None
    parse_special: bool | None


class PromptKeywords(TypedDict, total=False):
    """What is told about a prompt."""

    prompt_logprobs: SupportsIndex | None


class ExtendKeywords(ReplyKeywords, TextKeywords, PromptKeywords, total=False):
    """What extend takes beside a prompt."""


class WaitKeywords(TypedDict, total=False):
    """Whether a call waits for a slot when all are open: True, False, or for how many seconds."""

    wait: bool | SupportsFloat | None


class CancelKeywords(WaitKeywords, total=False):
    """How a call waits for a slot, and what ends it."""

    cancel: Cancel | None


class OpenKeywords(ExtendKeywords, WaitKeywords, total=False):
    """What open takes beside a prompt."""


class StreamKeywords(ExtendKeywords, CancelKeywords, total=False):
    """What stream takes beside a prompt."""


class GenerateKeywords(StreamKeywords, total=False):
    """What generate takes beside prompts and n."""

    on_result: Callable[[int, Any], Any] | None  # (i, Generation)


class ScoreKeywords(TextKeywords, WaitKeywords, total=False):
    """What score takes beside prompt and continuation."""


class ConversationKeywords(TypedDict, total=False):
    """How a conversation becomes a prompt."""

    thinking: bool | None
    reasoning_effort: SupportsIndex | str | None
    tool_choice: str
    response_format: Mapping[str, Any] | None
    continue_final_message: bool


class StreamChatKeywords(ReplyKeywords, ConversationKeywords, CancelKeywords, total=False):
    """What stream_chat takes beside messages and tools."""


class ChatKeywords(StreamChatKeywords, total=False):
    """What chat takes beside messages, tools and n."""

    on_result: Callable[[int, Any], Any] | None  # (i, ChatReply)


def names(kind: type) -> frozenset[str]:
    """The names that one of these types holds."""
    return frozenset(kind.__annotations__)


def refuse_unknown(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises TypeError naming keywords that are not known, the nearest known ones, and all of them."""
    unknown = sorted(set(given) - known)
    if unknown:
        near = sorted({match for name in unknown for match in get_close_matches(name, known, 1)})
        hint = f" (did you mean {', '.join(near)}?)" if near else ""
        raise TypeError(f"unknown keyword {', '.join(unknown)}{hint}; known are {', '.join(sorted(known))}")
