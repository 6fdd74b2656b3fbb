"""The Engram token map: ids whose text differs only in case, accents or space share one; knows no hashing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as RawTokenizer

from tensorfold.text.bytelevel import ByteLevelBackend

if TYPE_CHECKING:
    from tensorfold.config import ModelConfig
    from tensorfold.text.tokenizer import Tokenizer

_LONE_SPACE = "\ue000"  # stands in for a single space while the ends are stripped


def engram_token_map(tokenizer: Tokenizer, config: ModelConfig) -> np.ndarray:
    """Compressed id of every id, int32 [vocab_size] (docs/model.md#engram).

    Compressed ids count the normalised texts in order of first appearance; an id beyond the tokenizer's own tokens gets
    the pad's. ValueError if their number is not engram_compressed_vocab_size, or the tokenizer is no tokenizer.json."""
    backend = tokenizer.backend
    if not isinstance(backend, ByteLevelBackend):
        raise ValueError(f"{backend.path}: the Engram token map is defined on a tokenizer.json only")
    size, pad = len(tokenizer), config.engram_pad_token_id
    if backend.max_id() != size - 1:
        raise ValueError(
            f"{backend.path} has {size} tokens but ids up to {backend.max_id()}: the Engram map needs every id"
        )
    if not 0 <= pad < size:
        raise ValueError(f"engram_pad_token_id {pad} is not in {backend.path} (ids 0 to {size - 1})")
    ids = compressed_ids(backend.raw, size)
    out = np.full(config.vocab_size, ids[pad], np.int32)
    out[:size] = ids
    found = max(ids) + 1
    if found != config.engram_compressed_vocab_size:
        raise ValueError(
            f"{backend.path} gives {found} compressed ids, but engram_compressed_vocab_size is "
            f"{config.engram_compressed_vocab_size}: the tokenizer belongs to another model"
        )
    return out


def compressed_ids(tokenizer: RawTokenizer, size: int) -> list[int]:
    """The rule itself: ids 0..size-1 numbered by normalised text, in order of first appearance."""
    normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )
    first_seen: dict[str, int] = {}
    out = []
    for i in range(size):
        text = tokenizer.decode([i], skip_special_tokens=False)
        key = tokenizer.id_to_token(i) or "" if "\ufffd" in text else normalizer.normalize_str(text) or text
        out.append(first_seen.setdefault(key, len(first_seen)))
    return out
