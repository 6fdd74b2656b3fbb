"""The prompt argument in its every form to lists of ids; knows no model, no batch and no MLX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorfold.arguments import shown, whole

if TYPE_CHECKING:
    from tensorfold.config import ModelConfig
    from tensorfold.text.tokenizer import Tokenizer


def parse_prompts(
    prompt: Any, tokenizer: Tokenizer, config: ModelConfig, add_bos: bool = True, parse_special: bool | None = None
) -> tuple[list[list[int]], bool]:
    """The ids of each prompt, and whether `prompt` was a list of prompts (a list in is a list out).

    A str or a flat sequence of ints (list, tuple, range, numpy or MLX array) is one prompt; a sequence of strs and of
    such sequences, mixed as one likes, is many. Text follows `Tokenizer.encode`; ids are taken as given, with no bos.
    ValueError for an empty list or prompt, an id outside 0..vocab_size-1 or an image id; TypeError for anything else
    (bool, float, bytes, nested lists). Each names the position and the value."""
    reader = _Reader(tokenizer, config, add_bos, parse_special)
    if isinstance(prompt, str):
        return [reader.text(prompt, "the prompt")], False
    items = _items(prompt)
    if items is None:
        raise TypeError(f"a prompt is a str, a sequence of ints, or a list of such prompts, not {_shown(prompt)}")
    if not items:
        raise ValueError("the prompt is empty: give a text, at least one id, or a list of prompts")
    if not (isinstance(items[0], str) or _items(items[0]) is not None):
        return [reader.ids(items, "the prompt")], False
    return [reader.one(item, f"prompt {i}") for i, item in enumerate(items)], True


class _Reader:
    """Reads one prompt at a time under one call's rules."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, add_bos: bool, parse_special: bool | None) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = config.vocab_size
        self._image = config.image_token_id
        self._add_bos = add_bos
        self._parse_special = parse_special

    def one(self, item: Any, name: str) -> list[int]:
        if isinstance(item, str):
            return self.text(item, name)
        items = _items(item)
        if items is None:
            raise TypeError(f"{name} is {_shown(item)}: in a list of prompts each is a str or a sequence of ints")
        return self.ids(items, name)

    def text(self, text: str, name: str) -> list[int]:
        try:
            ids = self._tokenizer.encode(text, add_bos=self._add_bos, parse_special=self._parse_special)
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from None
        if not ids:
            raise ValueError(f"{name} has no tokens: its text {text[:40]!r} gives none and add_bos is False")
        if self._image in ids:
            at = ids.index(self._image)
            raise ValueError(f"{name} gives the image id {self._image} at position {at}: {_NO_IMAGES}")
        return ids

    def ids(self, items: Sequence[Any], name: str) -> list[int]:
        if not items:
            raise ValueError(f"{name} is empty: a prompt holds at least one id")
        return [self._id(value, position, name) for position, value in enumerate(items)]

    def _id(self, value: Any, position: int, name: str) -> int:
        number = whole(value)
        if isinstance(value, Mapping):
            raise TypeError(f"{name} has {_shown(value)} at position {position}: chat takes messages")
        if number is None:
            raise TypeError(f"{name} has {_shown(value)} at position {position}: a token id is an int")
        if not 0 <= number < self._vocab_size:
            raise ValueError(f"{name} has id {number} at position {position}: ids are 0 to {self._vocab_size - 1}")
        if number == self._image:
            raise ValueError(f"{name} has the image id {number} at position {position}: {_NO_IMAGES}")
        return number


_NO_IMAGES = "this library runs the text model only"


def _items(value: Any) -> Sequence[Any] | None:
    """The items of a sequence or of an array with dimensions; None for a single value."""
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return None
    if isinstance(value, Sequence):
        return value
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0:  # numpy and MLX arrays alike
        listed: list[Any] = value.tolist()
        return listed
    return None


def _shown(value: Any) -> str:
    return f"{shown(value)} ({type(value).__name__})"
