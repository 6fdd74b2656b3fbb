"""A small byte-level BPE tokenizer in the published form, trained on a few lines; knows no weights."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers


def _mark(name: str) -> str:
    """A special token as published: full-width bars, and U+2581 for spaces."""
    return f"<\uff5c{name.replace(' ', chr(0x2581))}\uff5c>"


BOS, EOS, PAD = _mark("begin of sentence"), _mark("end of sentence"), _mark(" pad ")
LAST = [_mark("User"), _mark("Assistant"), "<think>", "</think>", _mark("place holder no 799"), _mark("deepseek_image")]
# Case, accents and ligatures, so that the Engram token map has something to join.
LINES = [
    "the The THE then Then THEN and And AND of OF in In IN to To TO is Is IS it It IT was Was",
    "caf\u00e9 Caf\u00e9 CAF\u00c9 cafe na\u00efve naive r\u00e9sum\u00e9 resume R\u00e9sum\u00e9",
    "\u00fcber uber \u00dcBER Uber",
    "a quick brown fox jumps over the lazy dog. A Quick Brown Fox Jumps Over The Lazy Dog!",
    "memory Memory MEMORY weight Weight weights layer Layer layers token Token tokens draft Draft",
    "def main(args): return args  # code Code CODE",
    "\tfor i in range(10):\n\t\tprint(i)\n    if x == y:\n        pass",
    "0 1 2 10 12 123 1234 2026 \ufb01ne fine \ufb01le file of the of the and the in the to the",
]


def train_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer of exactly `vocab_size` tokens: bos, eos, pad, bytes, merges, fillers, then the marks of chat.

    The last two ids are the drafter's noise token and the image token. Raises ValueError below 265 tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = 3 + len(alphabet) + len(LAST)
    if vocab_size < least:
        raise ValueError(f"vocab_size {vocab_size} is too small for a byte-level tokenizer: at least {least}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(LAST),
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=alphabet,
        min_frequency=1,
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    fillers = vocab_size - len(LAST) - tokenizer.get_vocab_size()
    names = [_mark(f"place holder no {1000 + i}") for i in range(fillers)] + LAST
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, context: int) -> None:
    """tokenizer.json and tokenizer_config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
