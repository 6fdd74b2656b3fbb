"""Streaming: the pieces are the whole decode, no character is shown broken, and the cost of an id is bounded."""

from __future__ import annotations

import random
from collections.abc import Container

import pytest

from tensorfold.text.tokenizer import Tokenizer
from tests.text.helpers import EXAMPLE, MIXED, example_config, example_tokenizer


def streamed(tok: Tokenizer, ids: list[int], hidden: Container[int] | None = None) -> list[str]:
    stream = tok.detokenizer(hidden)
    pieces = [*map(stream.add, ids), stream.finish()]
    assert stream.text == "".join(pieces)
    return pieces


def test_mixed_scripts_stream_without_replacement_characters():
    tok = example_tokenizer()
    ids = tok.encode(MIXED)
    assert len(ids) > len(MIXED)  # so characters are split over ids
    pieces = streamed(tok, ids)
    assert "".join(pieces) == MIXED
    assert not any("\ufffd" in p for p in pieces)
    assert pieces[-1] == ""


def test_any_ids_stream_to_the_librarys_whole_decode():
    tok, rng = example_tokenizer(), random.Random(1)
    marks = tok.backend.marks.values()
    for _ in range(3000):
        ids = [rng.randrange(rng.choice([3, 260, 2048])) for _ in range(rng.randrange(16))]
        for hidden in (None, {tok.bos_id, tok.eos_id, tok.pad_id}, ()):
            left = [i for i in ids if i not in (marks if hidden is None else hidden)]
            whole = tok.backend.raw.decode(left, skip_special_tokens=False)
            assert "".join(streamed(tok, ids, hidden)) == whole
            assert hidden or whole == tok.decode(ids, skip_special_tokens=hidden is None)


def test_no_piece_shows_a_character_that_a_later_id_completes():
    tok, rng = example_tokenizer(), random.Random(2)
    for _ in range(500):
        text = "".join(chr(rng.choice([0x41, 0x10F, 0x5E2, 0x793E, 0x1F680, 0x200D])) for _ in range(8))
        assert "\ufffd" not in "".join(streamed(tok, tok.encode(text)))


def test_broken_bytes_come_out_as_soon_as_they_are_broken():
    tok = example_tokenizer()
    emoji = tok.encode("\U0001f680", add_bos=False)
    letter = tok.encode("a", add_bos=False)
    stream = tok.detokenizer()
    assert [stream.add(i) for i in emoji[:2]] == ["", ""]
    assert stream.add(letter[0]) == "\ufffda"
    assert stream.add(emoji[0]) == ""
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""
    with pytest.raises(ValueError, match="finished"):
        stream.add(letter[0])


def test_an_id_outside_the_vocabulary_is_refused_and_changes_nothing():
    stream = example_tokenizer().detokenizer()
    for bad in (-1, 2048):
        with pytest.raises(ValueError, match=f"{bad}.*2047"):
            stream.add(bad)
    assert stream.text == ""


def test_each_id_is_read_once_and_nothing_is_decoded_again():
    class Lookups:
        """Stands for the library and allows looking up single ids only."""

        def __init__(self, raw):
            self.raw, self.count = raw, 0

        def id_to_token(self, i):
            self.count += 1
            return self.raw.id_to_token(i)

    tok = Tokenizer.from_folder(EXAMPLE, example_config())
    tok.backend.raw = lookups = Lookups(tok.backend.raw)  # type: ignore[assignment]
    rng = random.Random(3)
    ids = [rng.randrange(2048) for _ in range(20000)]
    stream = tok.detokenizer()
    longest = max(len(stream.add(i)) for i in ids)
    assert lookups.count <= 2048
    assert longest < 64
