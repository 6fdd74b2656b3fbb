"""Configs and tokenizers for the text tests; knows no weights."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sentencepiece

from tensorfold.config import ModelConfig
from tensorfold.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "tiny-v41"
DATA = ROOT / "tests" / "data"
# Czech, an emoji of three characters, Chinese, Hebrew
MIXED = "\u010f \U0001f9d1\u200d\U0001f680 \u793e\u533a \u05e2\u05d1\u05e8\u05d9\u05ea"


@cache
def example_config() -> ModelConfig:
    return ModelConfig.from_folder(EXAMPLE)


@cache
def example_tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(EXAMPLE, example_config())


def plain_config(vocab_size: int, **changed: Any) -> Any:
    """What the text modules read of a config without Engram layers."""
    known = {"vocab_size": vocab_size, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    made = SimpleNamespace(**{**known, "engram_layer_ids": (), "image_token_id": vocab_size - 1, **changed})
    made.eos_token_ids = made.eos_token_id if isinstance(made.eos_token_id, tuple) else (made.eos_token_id,)
    return made


def train_sentencepiece(folder: Path, **options: Any) -> sentencepiece.SentencePieceProcessor:
    """Writes folder/tokenizer.model trained on the example's pages, and returns it loaded."""
    lines = [
        line for name in ("README.md", "LICENSES/WordNet-3.0.txt") for line in (EXAMPLE / name).read_text().split("\n")
    ]
    out = io.BytesIO()
    settings = {"vocab_size": 500, "byte_fallback": True, "hard_vocab_limit": False, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **settings)
    (folder / "tokenizer.model").write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
