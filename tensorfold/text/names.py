"""The names of a tokenizer that scripts for transformers and mlx-lm use; knows no rule of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from tensorfold.keywords import ConversationKeywords, names, refuse_unknown
from tensorfold.text.chat import THINK, THINK_END, encode_chat
from tensorfold.text.rendered import RenderedText

if TYPE_CHECKING:
    from tensorfold.text.bytelevel import ByteLevelBackend
    from tensorfold.text.spm import SentencePieceBackend

_NOT_HERE = ("return_dict", "return_tensors", "chat_template", "documents", "padding", "truncation", "max_length")


class TransformersNames:
    """What such scripts ask of a tokenizer, beside encode and decode."""

    backend: ByteLevelBackend | SentencePieceBackend
    bos_id: int
    eos_id: int
    eos_ids: tuple[int, ...]
    pad_id: int
    special_ids: frozenset[int]
    chat_template = "deepseek_v41"  # a name: DeepSeek's own library renders conversations
    has_chat_template = True
    unk_token = unk_token_id = None

    @property
    def bos_token_id(self) -> int:
        return self.bos_id

    @property
    def eos_token_id(self) -> int:
        return self.eos_id

    @property
    def pad_token_id(self) -> int:
        return self.pad_id

    @property
    def bos_token(self) -> str | None:
        return self.backend.token(self.bos_id)

    @property
    def eos_token(self) -> str | None:
        return self.backend.token(self.eos_id)

    @property
    def pad_token(self) -> str | None:
        return self.backend.token(self.pad_id)

    @property
    def eos_token_ids(self) -> set[int]:
        return set(self.eos_ids)

    @property
    def all_special_ids(self) -> list[int]:
        return sorted(self.special_ids)

    @property
    def all_special_tokens(self) -> list[str]:
        return [self.backend.token(i) or "" for i in self.all_special_ids]

    @property
    def has_thinking(self) -> bool:
        return {THINK, THINK_END} <= self.backend.marks.keys()

    @property
    def think_start(self) -> str | None:
        return THINK if self.has_thinking else None

    @property
    def think_end(self) -> str | None:
        return THINK_END if self.has_thinking else None

    @property
    def name_or_path(self) -> str:
        return str(self.backend.path.parent)

    def get_vocab(self) -> dict[str, int]:
        """Every token's id."""
        return self.backend.vocabulary()

    def get_added_vocab(self) -> dict[str, int]:
        """The ids of the special tokens that steer the model."""
        return dict(self.backend.marks)

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int | None: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int | None]: ...
    def convert_tokens_to_ids(self, tokens: str | list[str]) -> int | None | list[int | None]:
        """The id of a token as the vocabulary spells it, or of each of a list; None where there is none."""
        find = self.backend.token_id
        return find(tokens) if isinstance(tokens, str) else [find(token) for token in tokens]

    @overload
    def convert_ids_to_tokens(self, ids: int) -> str | None: ...
    @overload
    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]: ...
    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | None | list[str | None]:
        """A token as the vocabulary spells it, or each of a list; None where there is none."""
        return [self.backend.token(int(i)) for i in ids] if isinstance(ids, Iterable) else self.backend.token(int(ids))

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *,
        tokenize: Literal[False], add_generation_prompt: bool = False, **options: Any,
    ) -> str: ...  # fmt: skip
    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *,
        tokenize: Literal[True] = True, add_generation_prompt: bool = False, **options: Any,
    ) -> list[int]: ...  # fmt: skip
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *,
        tokenize: bool = True, add_generation_prompt: bool = False, **options: Any,
    ) -> str | list[int]:  # fmt: skip
        """The prompt of a conversation of OpenAI-style messages: ids, or text that keeps them; needs the extra `chat`.

        add_generation_prompt: whether the assistant's turn is opened. Keywords: thinking (or enable_thinking; on unless
        False), reasoning_effort, tool_choice, response_format, continue_final_message, as in `Model.chat`.
        Raises ValueError or TypeError naming the message or the keyword, ImportError without the extra.
        """
        made, tokenizer = _template_options(options), cast(Any, self)
        prompt = encode_chat(tokenizer, conversation, tools, add_generation_prompt=add_generation_prompt, **made)
        return prompt.ids if tokenize else RenderedText.of(prompt.text, prompt.ids, self)


def _template_options(options: dict[str, Any]) -> dict[str, Any]:
    """Keywords of encode_chat. What transformers takes beside them may be given only where it asks for nothing."""
    made = {k: v for k, v in options.items() if k not in _NOT_HERE or v not in (None, False)}
    if "enable_thinking" in made:
        if made.get("thinking") is not None:
            raise ValueError(f"thinking={made['thinking']!r} and its alias enable_thinking are both given: give one")
        made["thinking"] = made.pop("enable_thinking")
    refuse_unknown(made, names(ConversationKeywords) | {"tools", "tokenize", "add_generation_prompt"})
    return made
