"""Token ids to text one at a time; knows no model and no stop strings."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from tensorfold.arguments import shown, whole


class Assembler(Protocol):
    """Turns ids into text in order, keeping back a character that is still open."""

    def add(self, i: int) -> str: ...

    def hide(self) -> str:
        """What an id that writes nothing completes."""
        ...

    def finish(self) -> str: ...


class Detokenizer:
    """Streams text: the pieces of `add` and of one last `finish` concatenate to `Tokenizer.decode` of the same ids.

    A character split over ids comes out whole with its last id; U+FFFD appears only for bytes that no later id can
    complete. Each id is read once, whatever the length of the text."""

    def __init__(self, assembler: Assembler, hidden: Container[int], vocab_size: int) -> None:
        self._assembler = assembler
        self._hidden = hidden
        self._vocab_size = vocab_size
        self._pieces: list[str] = []
        self._finished = False

    def add(self, token: int) -> str:
        """The text that `token` completes, often "". ValueError outside the vocabulary or after `finish`."""
        if self._finished:
            raise ValueError("this detokenizer is finished: make a new one for another text")
        found = whole(token)
        if found is None:
            raise TypeError(f"a token id is an int, not {shown(token)}")
        token = found
        if not 0 <= token < self._vocab_size:
            raise ValueError(f"token id {token} is outside the vocabulary 0 to {self._vocab_size - 1}")
        if token in self._hidden:
            return self._keep(self._assembler.hide())
        return self._keep(self._assembler.add(token))

    def finish(self) -> str:
        """The rest: U+FFFD for each broken character left open, else "". Calling it again gives ""."""
        if self._finished:
            return ""
        self._finished = True
        return self._keep(self._assembler.finish())

    @property
    def text(self) -> str:
        """Everything given out so far."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _keep(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece
