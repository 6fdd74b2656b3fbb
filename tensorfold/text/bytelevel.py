"""The tokenizer.json back end, through the tokenizers library: marks, bytes of an id; knows no bos rule, no config."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RawTokenizer


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in that byte-level BPE vocabularies use for each byte."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + i): b for i, b in enumerate(rest)}


_BYTE_OF = _byte_alphabet()


class ByteLevelBackend:
    """A byte-level vocabulary read from tokenizer.json.

    A mark is an added token, special or not (published files flag <think> either way); one of white space alone is
    ordinary vocabulary. ValueError for a file that is not a byte-level tokenizer.json, OSError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_bytes()
        try:
            data = json.loads(text)
        except ValueError as e:
            raise ValueError(f"{path} is not JSON ({e}): is the download complete?") from None
        if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
            raise ValueError(f'{path} holds no "model" object: it is not a file of the tokenizers library')
        _check_decoder(path, data.get("decoder"))
        data["truncation"] = data["padding"] = None
        data["model"]["dropout"] = None  # a random encoding would not be reproducible
        self.raw = self._build(data)
        self.marks = {t.content: i for i, t in self.raw.get_added_tokens_decoder().items() if not t.content.isspace()}
        for token in data.get("added_tokens") or []:
            given = self.raw.token_to_id(token["content"])
            if given != token["id"]:  # the library renumbers added tokens that do not follow the vocabulary
                raise ValueError(
                    f"{path} gives the added token {token['content']!r} the id {token['id']}, where {given} is next: "
                    "the vocabulary has a gap or an overlap"
                )
            token["special"] = token["content"] in self.marks
        self._plain = self._build(data)
        self._plain.encode_special_tokens = True
        self.size = self.raw.get_vocab_size(with_added_tokens=True)
        self._bytes: dict[int, bytes] = {}

    def _build(self, data: dict[str, Any]) -> RawTokenizer:
        try:
            return RawTokenizer.from_str(json.dumps(data))
        except Exception as e:  # the library raises bare Exception for every malformed file
            raise ValueError(f"{self.path} is not a valid tokenizer.json: {e}") from None

    def max_id(self) -> int:
        """The largest id of the vocabulary, added tokens included."""
        return max(self.raw.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, parse_marks: bool) -> list[int]:
        """Ids of text without bos; marks in it become their ids or stay text."""
        chosen = self.raw if parse_marks else self._plain
        return chosen.encode(text, add_special_tokens=False).ids

    def vocabulary(self) -> dict[str, int]:
        """The id of every token."""
        return self.raw.get_vocab(with_added_tokens=True)

    def token_id(self, token: str) -> int | None:
        return self.raw.token_to_id(token)

    def token(self, i: int) -> str | None:
        return self.raw.id_to_token(i)

    def role_id(self, role: str) -> int | None:
        """tokenizer.json states no bos and no eos."""
        return None

    def token_bytes(self, i: int) -> bytes:
        """What id i writes; nothing for an id without a token."""
        known = self._bytes.get(i)
        if known is None:
            token = self.raw.id_to_token(i) or ""
            inside = [_BYTE_OF.get(c) for c in token]
            known = token.encode() if None in inside else bytes(b for b in inside if b is not None)
            self._bytes[i] = known
        return known

    def assembler(self) -> ByteAssembler:
        return ByteAssembler(self)


class ByteAssembler:
    """Joins the bytes of ids into whole characters; a character still open is kept back."""

    def __init__(self, backend: ByteLevelBackend) -> None:
        self._backend = backend
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, i: int) -> str:
        return self._decoder.decode(self._backend.token_bytes(i))

    def hide(self) -> str:
        return ""  # tokenizers drops such ids before it joins bytes

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def _check_decoder(path: Path, decoder: object) -> None:
    inner = decoder.get("decoders") if isinstance(decoder, dict) and decoder.get("type") == "Sequence" else [decoder]
    kinds = [d.get("type") if isinstance(d, dict) else None for d in inner] if isinstance(inner, list) else [None]
    if kinds != ["ByteLevel"]:
        raise ValueError(f"{path} has the decoder {kinds}: only byte-level files (ByteLevel) are read")
