"""The SentencePiece back end (tokenizer.model): marks, text of an id; knows no bos rule and no config."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

_SPACE = "\u2581"  # how a piece writes a space
_USER_DEFINED, _UNUSED = 4, 5  # piece types of the file format
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"  # appended: normalizer_spec { add_dummy_prefix: false } overrides the file's own


class SentencePieceBackend:
    """A SentencePiece vocabulary.

    A mark is a control piece, or a user-defined piece that is not white space alone.
    ValueError for a file that is not a SentencePiece model, OSError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        model = path.read_bytes()
        self.raw = self._build(model)
        self.size = self.raw.get_piece_size()
        found, dummy_prefix, squeeze = self._facts(model)
        self.drops_lead = dummy_prefix or squeeze  # whether a text's first space is SentencePiece's own
        self.drops_all_leads = squeeze
        controls = {i: self.raw.id_to_piece(i) for i in range(self.size) if self.raw.is_control(i)}
        chosen = {i: at for i, at in found.items() if self.raw.id_to_piece(i).strip(_SPACE + " \t\r\n")}
        self.controls = frozenset(controls)
        self.marks = {piece: i for i, piece in controls.items()} | {self.raw.id_to_piece(i): i for i in chosen}
        plain = bytearray(model)
        for at in chosen.values():
            plain[at] = _UNUSED  # a piece of this type is never matched in text
        self._plain = self._build(bytes(plain))
        self._inner = self._build(model + _NO_DUMMY_PREFIX)  # only the start of a text gets the leading space
        longest_first = sorted(controls.values(), key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if controls else None
        self._unknown = self.raw.decode([self.raw.unk_id()])

    def _build(self, model: bytes) -> sentencepiece.SentencePieceProcessor:
        try:
            built = sentencepiece.SentencePieceProcessor(model_proto=model)
            if model and built.get_piece_size() > 0:
                return built
            reason = "it holds no pieces"
        except Exception as e:  # the library's exception type differs between its versions
            reason = str(e)
        raise ValueError(f"{self.path} is not a SentencePiece model ({reason}): is the download complete?")

    def _facts(self, model: bytes) -> tuple[dict[int, int], bool, bool]:
        """Where each user-defined piece's type byte lies, add_dummy_prefix and remove_extra_whitespaces."""
        user_defined: dict[int, int] = {}
        dummy_prefix = squeeze = True
        piece = 0
        for number, at, end, _ in _fields(model, 0, len(model)):
            if number == 1:
                for inner, spot, _, value in _fields(model, at, end):
                    if inner == 3 and value == _USER_DEFINED:
                        user_defined[piece] = spot
                piece += 1
            elif number == 2:
                if any(inner == 24 and value for inner, _, _, value in _fields(model, at, end)):
                    raise ValueError(f"{self.path} treats white space as a suffix, which this library does not read")
            elif number == 3:
                for inner, _, _, value in _fields(model, at, end):
                    dummy_prefix = bool(value) if inner == 3 else dummy_prefix
                    squeeze = bool(value) if inner == 4 else squeeze
            elif number == 5 and any(inner == 2 and b > a for inner, a, b, _ in _fields(model, at, end)):
                raise ValueError(f"{self.path} has a denormalizer, which this library does not read")
        return user_defined, dummy_prefix, squeeze

    def max_id(self) -> int:
        """The largest id of the vocabulary."""
        return self.size - 1

    def encode(self, text: str, parse_marks: bool) -> list[int]:
        """Ids of text without bos; marks in it become their ids or stay text.

        Text is normalised as the file says, each stretch between control pieces on its own."""
        if not parse_marks:
            return list(self._plain.encode(text))
        ids: list[int] = []
        started = False
        for at, part in enumerate(self._split.split(text) if self._split else [text]):
            if at % 2:  # the odd parts are the control pieces that were split at
                ids.append(self.marks[part])
            elif part:
                ids += (self._inner if started else self.raw).encode(part)
                started = True
        return ids

    def vocabulary(self) -> dict[str, int]:
        """The id of every piece."""
        return {self.raw.id_to_piece(i): i for i in range(self.size)}

    def token_id(self, token: str) -> int | None:
        i = self.raw.piece_to_id(token)
        return i if self.raw.id_to_piece(i) == token else None

    def token(self, i: int) -> str | None:
        return self.raw.id_to_piece(i) if 0 <= i < self.size else None

    def role_id(self, role: str) -> int | None:
        """The id that the file itself gives to bos or eos."""
        i: int = {"bos": self.raw.bos_id, "eos": self.raw.eos_id}[role]()
        return i if i >= 0 else None

    def assembler(self) -> PieceAssembler:
        return PieceAssembler(self)

    def shown(self, i: int) -> str:
        """The text of one id that is not a byte; spaces still written as U+2581."""
        return self._unknown if self.raw.is_unknown(i) else self.raw.id_to_piece(i)


class PieceAssembler:
    """Joins pieces and byte pieces into text, dropping the space that SentencePiece puts before a text."""

    def __init__(self, backend: SentencePieceBackend) -> None:
        self._backend = backend
        self._open = b""
        self._started = False  # whether the text's own first space can no longer come

    def add(self, i: int) -> str:
        raw = self._backend.raw
        if i >= self._backend.size:
            return ""
        if raw.is_byte(i):
            self._open += bytes([int(raw.id_to_piece(i)[1:-1], 16)])
            return self._started_by(self._whole_characters())
        return self.finish() + self._piece(i)

    def hide(self) -> str:
        return self.finish()  # SentencePiece joins no bytes across another piece

    def finish(self) -> str:
        left = "\ufffd" * len(self._open)  # no byte of an open character is valid alone
        self._open = b""
        return self._started_by(left)

    def _piece(self, i: int) -> str:
        text = self._backend.shown(i)
        if i in self._backend.controls:
            return text
        dropped = not self._started and self._backend.drops_lead and text.startswith(_SPACE)
        if dropped:
            text = text[1:]
            self._started = not self._backend.drops_all_leads
        return self._started_by(text.replace(_SPACE, " "))

    def _started_by(self, text: str) -> str:
        self._started = self._started or bool(text)
        return text

    def _whole_characters(self) -> str:
        """Takes every finished character and every byte that can start none from the open bytes."""
        out = ""
        while self._open:
            try:
                text = codecs.getincrementaldecoder("utf-8")("strict").decode(self._open)
            except UnicodeDecodeError as e:
                out += self._open[: e.start].decode() + "\ufffd"
                self._open = self._open[e.start + 1 :]
                continue
            if text:
                self._open = self._open[len(text.encode()) :]
            return out + text
        return out


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The protobuf fields of data[at:end]: (number, start of the value, its end, value of a varint or 0)."""
    while at < end:
        tag, at = _varint(data, at)
        kind, value = tag & 7, 0
        if kind == 0:
            value, stop = _varint(data, at)
            start = at
        elif kind == 2:
            size, start = _varint(data, at)
            stop = start + size
        else:
            start, stop = at, at + (8 if kind == 1 else 4)
        yield tag >> 3, start, stop, value
        at = stop


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
