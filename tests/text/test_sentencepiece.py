"""tokenizer.model: equal to SentencePiece itself, marks, what it is refused for."""

from __future__ import annotations

import random

import pytest

from tensorfold.text.tokenizer import Tokenizer
from tests.text.helpers import MIXED, example_config, plain_config, train_sentencepiece

KINDS = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "no lead": {"add_dummy_prefix": False},
    "spaces kept": {"remove_extra_whitespaces": False},
    "bare": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "no bytes": {"byte_fallback": False},
    "symbols": {"user_defined_symbols": ["<think>", "\u2581\u2581"], "control_symbols": ["<user>"]},
    "bpe symbols": {"model_type": "bpe", "user_defined_symbols": ["<think>"], "remove_extra_whitespaces": False},
}


def load(folder, **options):
    raw = train_sentencepiece(folder, **options)
    return Tokenizer.from_folder(folder, plain_config(raw.get_piece_size())), raw


@pytest.mark.parametrize("kind", KINDS)
def test_decode_and_stream_equal_sentencepiece_for_any_ids(tmp_path, kind):
    tok, raw = load(tmp_path, **KINDS[kind])
    rng, size = random.Random(kind), raw.get_piece_size()
    often = [raw.piece_to_id(p) for p in ("\u2581", "<0xE2>", "<0x96>", "<0x81>", "<0x20>")] + [0, 1, 2]
    shown = {raw.piece_to_id("<think>")} - {raw.unk_id()}  # a user-defined mark, which SentencePiece would show
    for _ in range(3000):
        ids = [
            rng.choice([rng.randrange(size), rng.randrange(4, 260), rng.choice(often)])
            for _ in range(rng.randrange(10))
        ]
        ids = [i for i in ids if i not in shown and i < size]
        assert tok.decode(ids, skip_special_tokens=True) == raw.decode(ids), [raw.id_to_piece(i) for i in ids]


@pytest.mark.parametrize("kind", KINDS)
def test_text_encodes_as_sentencepiece_does(tmp_path, kind):
    tok, raw = load(tmp_path, **KINDS[kind])
    for text in ("WordNet 3.0 Copyright", "  two  spaces ", MIXED, "a\nb"):
        assert tok.encode(text) == [1, *raw.encode(text)]


def test_mixed_scripts_survive_through_bytes(tmp_path):
    tok, _ = load(tmp_path)
    ids = tok.encode(MIXED)
    stream = tok.detokenizer()
    pieces = [*map(stream.add, ids), stream.finish()]
    assert "".join(pieces) == stream.text == tok.decode(ids, skip_special_tokens=True) == MIXED
    assert not any("\ufffd" in p for p in pieces)


@pytest.mark.parametrize("kind", ["symbols", "bpe symbols"])
def test_marks_in_text_stay_text_unless_parsed(tmp_path, kind):
    tok, _ = load(tmp_path, **KINDS[kind])
    marks = tok.backend.marks
    assert {"<s>", "</s>", "<think>"} <= set(marks) and "\u2581\u2581" not in marks
    for mark in marks:
        text = f"the licence{mark}is{mark}"
        plain = tok.encode(text, add_bos=False, parse_special=False)
        assert not set(plain) & set(marks.values())
        assert tok.decode(plain) == text
        parsed = tok.encode(text, add_bos=False, parse_special=True)
        assert parsed.count(marks[mark]) == 2
        assert tok.decode(parsed, skip_special_tokens=True) == "the licenceis" and tok.decode(parsed) == text


def test_bos_comes_once(tmp_path):
    tok, _ = load(tmp_path)
    assert tok.encode("<s>the") == tok.encode("<s>the", parse_special=True) == tok.encode("the")
    assert tok.encode("the", add_bos=False) == tok.encode("the")[1:]


def test_tokenizer_json_is_preferred_and_engram_needs_it(tmp_path):
    train_sentencepiece(tmp_path)
    with pytest.raises(ValueError, match=r"no tokenizer.json.*\[1, 4\]"):
        Tokenizer.from_folder(tmp_path, example_config())


def test_a_model_that_contradicts_the_config_is_refused(tmp_path):
    size = train_sentencepiece(tmp_path).get_piece_size()
    with pytest.raises(ValueError, match="bos_token_id is 0.*is id 1"):
        Tokenizer.from_folder(tmp_path, plain_config(size, bos_token_id=0))
    with pytest.raises(ValueError, match=f"ids up to {size - 1}"):
        Tokenizer.from_folder(tmp_path, plain_config(size - 1))
    train_sentencepiece(tmp_path, treat_whitespace_as_suffix=True)
    with pytest.raises(ValueError, match="suffix"):
        Tokenizer.from_folder(tmp_path, plain_config(600))
    (tmp_path / "rule.tsv").write_text("61\t62\n")
    train_sentencepiece(tmp_path, denormalization_rule_tsv=str(tmp_path / "rule.tsv"))
    with pytest.raises(ValueError, match="denormalizer"):
        Tokenizer.from_folder(tmp_path, plain_config(600))


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\x0a\xff\xff"])
def test_a_malformed_model_is_named(tmp_path, content):
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(ValueError, match="tokenizer.model is not a SentencePiece model"):
        Tokenizer.from_folder(tmp_path, plain_config(500))


def test_a_cut_model_is_refused(tmp_path):
    train_sentencepiece(tmp_path)
    whole = (tmp_path / "tokenizer.model").read_bytes()
    (tmp_path / "tokenizer.model").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="tokenizer.model"):
        Tokenizer.from_folder(tmp_path, plain_config(600))
