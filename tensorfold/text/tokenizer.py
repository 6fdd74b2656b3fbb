"""Text to ids and back by the rules of this library: bos, marks, vocabulary; knows no chat form and no network."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tensorfold.text.bytelevel import ByteLevelBackend
from tensorfold.text.detokenizer import Detokenizer
from tensorfold.text.names import TransformersNames
from tensorfold.text.rendered import RenderedText
from tensorfold.text.spm import SentencePieceBackend

if TYPE_CHECKING:
    from tensorfold.config import ModelConfig

Backend = ByteLevelBackend | SentencePieceBackend


class Tokenizer(TransformersNames):
    """A checkpoint's tokenizer.

    Marks are the strings that steer the model: every added token of a tokenizer.json (flagged special or not, since
    published files flag `<think>` either way) and every control or user-defined piece of a SentencePiece model;
    white space alone is no mark. In text they stay text unless `parse_special=True`, so that a user's words
    cannot open another role; text that `apply_chat_template` or `decode` made keeps the ids it was made from.

    Text gets the bos id unless `add_bos=False`; a bos string at its head stands for that bos and is not doubled.
    The names that scripts for transformers and mlx-lm use are there too (TransformersNames).

    `special_ids` are those of all marks, bos and eos. `bos_id`, `eos_ids` and `pad_id` are the config's; `eos_id` is
    the one of `eos_ids` that the tokenizer's files name, or the first. `len()` counts the tokenizer's own tokens, which
    may be fewer than the model's vocabulary (ids without a token write nothing) and never more."""

    def __init__(self, backend: Backend, config: ModelConfig, names: dict[str, str]) -> None:
        self.backend = backend
        self.vocab_size = config.vocab_size
        if backend.max_id() >= config.vocab_size:
            raise ValueError(
                f"{backend.path} has ids up to {backend.max_id()}, but vocab_size is {config.vocab_size}: "
                "the tokenizer belongs to another model"
            )
        self.bos_id = self._agreed("bos", (config.bos_token_id,), names)
        self.eos_ids = config.eos_token_ids
        self.eos_id = self._agreed("eos", self.eos_ids, names)
        self.pad_id = config.pad_token_id
        marks = set(backend.marks.values())
        self.bos_string = (backend.token(self.bos_id) or "") if self.bos_id in marks else ""
        self._spelled = re.compile("|".join(map(re.escape, sorted(backend.marks, key=len, reverse=True))) or r"(?!)")
        self.special_ids = frozenset(marks | {self.bos_id, *self.eos_ids})

    @classmethod
    def from_folder(cls, path: str | Path, config: ModelConfig) -> Tokenizer:
        """Reads tokenizer.json, or tokenizer.model where there is none, and tokenizer_config.json if present.

        FileNotFoundError if the folder has neither; ValueError for a malformed file, one that contradicts the config,
        or a config with Engram layers and no tokenizer.json (their token map is defined on its vocabulary)."""
        folder = Path(path)
        names = _special_names(folder / "tokenizer_config.json")
        if (folder / "tokenizer.json").is_file():
            return cls(ByteLevelBackend(folder / "tokenizer.json"), config, names)
        if not (folder / "tokenizer.model").is_file():
            raise FileNotFoundError(f"{folder} has no tokenizer.json and no tokenizer.model: is the download complete?")
        if config.engram_layer_ids:
            raise ValueError(
                f"{folder} has a tokenizer.model and no tokenizer.json, but the config's Engram layers "
                f"{list(config.engram_layer_ids)} hash the vocabulary of tokenizer.json: add that file"
            )
        return cls(SentencePieceBackend(folder / "tokenizer.model"), config, names)

    def __len__(self) -> int:
        return self.backend.size

    def encode(
        self, text: str, add_bos: bool = True, parse_special: bool | None = None, *, add_special_tokens: bool = True
    ) -> list[int]:
        """Ids of `text`, with bos unless add_bos or add_special_tokens (its name in transformers) is False.

        TypeError if it is no str, ValueError if it holds a lone surrogate (not a character) or, unless parse_special
        says how they are meant, begins with bos and spells other marks; a warning if it spells marks without that bos.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise ValueError(f"text holds the lone surrogate {text[e.start]!r} at character {e.start}") from None
        add_bos = add_bos and add_special_tokens
        if isinstance(text, RenderedText) and text.tokenizer is self and parse_special is not False:
            return [self.bos_id, *text.ids] if add_bos and text.ids[0] != self.bos_id else list(text.ids)
        if parse_special is None:
            self._tell_spelled(text)
        if not add_bos:
            return self.backend.encode(text, bool(parse_special))
        if self.bos_string:
            text = text.removeprefix(self.bos_string)
        return [self.bos_id, *self.backend.encode(text, bool(parse_special))]

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of `ids` (or of one), special ones written or left out; broken UTF-8 becomes U+FFFD. ValueError for
        an id outside the vocabulary. Text with special ones keeps its ids when it is encoded again."""
        stream, found = self.detokenizer(None if skip_special_tokens else ()), list[int]()
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        for i in ids if isinstance(ids, Iterable) and not isinstance(ids, str) else [ids]:
            stream.add(i)
            found.append(int(i))
        stream.finish()
        if skip_special_tokens or self.special_ids.isdisjoint(found):
            return stream.text
        return RenderedText.of(stream.text, found, self)

    def batch_decode(self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = False) -> list[str]:
        """`decode` of each."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def detokenizer(self, hidden: Container[int] | None = None) -> Detokenizer:
        """A fresh streaming decoder. hidden: ids that write nothing, by default the special ones."""
        return Detokenizer(self.backend.assembler(), self.special_ids if hidden is None else hidden, self.vocab_size)

    def _tell_spelled(self, text: str) -> None:
        """Special tokens that text spells become text: an error where a rendered prompt is meant beyond doubt."""
        rendered = bool(self.bos_string) and text.startswith(self.bos_string)
        for found in self._spelled.finditer(text):
            if found[0] != self.bos_string:
                what = f"the text spells {found[0]}, which is text unless parse_special=True makes it the special token"
                if rendered:
                    raise ValueError(f"{what}, and begins as a rendered prompt does: say parse_special=True or False")
                return warnings.warn(f"{what}; parse_special=False says that text is meant", stacklevel=3)

    def _agreed(self, role: str, config_ids: tuple[int, ...], names: dict[str, str]) -> int:
        """The one of the config's ids that the tokenizer's files name, or the first if they name none."""
        shown = config_ids[0] if len(config_ids) == 1 else list(config_ids)
        for i in config_ids:
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"{role}_token_id {i} is outside the vocabulary 0 to {self.vocab_size - 1}")
            if self.backend.token(i) is None:
                raise ValueError(f"{role}_token_id is {i} in the config, but {self.backend.path} has no such token")
        says = self.backend.role_id(role)
        source = str(self.backend.path)
        if role in names:
            says, source = self.backend.token_id(names[role]), f"tokenizer_config.json ({role}_token {names[role]!r})"
        if says in config_ids:
            return says
        if says is not None or role in names:
            found = "is no token" if says is None else f"is id {says}"
            raise ValueError(
                f"{role}_token_id is {shown} in the config, but {role} {found} in {source}: mixed-up files?"
            )
        return config_ids[0]


def _special_names(path: Path) -> dict[str, str]:
    """The bos and eos strings that tokenizer_config.json states, by role."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_bytes())
    except ValueError as e:
        raise ValueError(f"{path} is not JSON ({e})") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(data).__name__}")
    names: dict[str, str] = {}
    for role in ("bos", "eos"):
        value = data.get(f"{role}_token")
        value = value.get("content") if isinstance(value, dict) else value
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"{path}: {role}_token must be a string, not {value!r}")
        names[role] = value
    return names
