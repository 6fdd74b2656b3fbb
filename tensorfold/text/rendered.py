"""Text that knows its ids; knows no tokenizer's rules and no chat form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class RenderedText(str):
    """Text in which special tokens are written out, with the ids that it stands for.

    As text of the tokenizer that made it, it is those very ids. What is cut or joined from it is plain text.
    """

    ids: tuple[int, ...]
    tokenizer: object

    @staticmethod
    def of(text: str, ids: Iterable[int], tokenizer: object) -> RenderedText:
        made = RenderedText(text)
        made.ids, made.tokenizer = tuple(ids), tokenizer
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)
