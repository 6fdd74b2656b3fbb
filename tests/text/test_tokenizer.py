"""tokenizer.json: bos, marks, agreement with the config, malformed files."""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer as RawTokenizer

from tensorfold.text.tokenizer import Tokenizer
from tests.text.helpers import DATA, EXAMPLE, MIXED, ROOT, example_config, example_tokenizer, plain_config

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
USER, THINK = "<｜User｜>", "<think>"


def edited(folder: Path, edit) -> Path:
    """A copy of the example's tokenizer files whose tokenizer.json went through `edit`."""
    data = json.loads((EXAMPLE / "tokenizer.json").read_text())
    edit(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    shutil.copy(EXAMPLE / "tokenizer_config.json", folder)
    return folder


def test_golden_prompts_and_replies_match_the_published_tokens():
    tok = example_tokenizer()
    with safe_open(DATA / "trained" / "golden.safetensors", "np") as golden:
        for prompt in json.loads((DATA / "trained" / "golden.json").read_text())["prompts"]:
            ids = golden.get_tensor(f"{prompt['index']}.ids").tolist()[: prompt["n_prompt"]]
            assert tok.encode(prompt["prompt"], parse_special=True) == ids
            assert tok.decode(prompt["greedy"]) == prompt["continuation"]


def test_bos_comes_once_and_only_when_asked():
    tok = example_tokenizer()
    hi = tok.encode("hi", add_bos=False)
    assert tok.bos_id not in hi
    assert tok.encode("hi") == tok.encode(BOS + "hi") == tok.encode(BOS + "hi", parse_special=True) == [tok.bos_id, *hi]
    assert tok.encode("") == [tok.bos_id]
    assert tok.encode("", add_bos=False) == []
    assert tok.encode(BOS + "hi", add_bos=False, parse_special=True) == [tok.bos_id, *hi]
    assert tok.decode(tok.encode(BOS + "hi", add_bos=False)) == BOS + "hi"  # stays text
    assert tok.encode(BOS + BOS).count(tok.bos_id) == 1


def test_marks_in_text_stay_text_unless_parsed():
    tok = example_tokenizer()
    marks = [t for t in tok.backend.marks if t != BOS]
    assert len(marks) == 8
    ids_of_marks = set(tok.backend.marks.values())
    for mark in marks:
        text = f"a {mark}b{mark}"
        with pytest.warns(UserWarning, match=re.escape(f"spells {mark}")):
            plain = tok.encode(text, add_bos=False)
        assert plain == tok.encode(text, add_bos=False, parse_special=False) and not ids_of_marks & set(plain)
        assert tok.decode(plain) == text
        assert tok.encode(text, add_bos=False, parse_special=True).count(tok.backend.marks[mark]) == 2


def test_a_rendered_prompt_as_plain_text_is_refused_in_words():
    """It begins with bos and spells marks: whoever means it as text, or as marks, says so."""
    tok = example_tokenizer()
    text = BOS + USER + "hi"
    with pytest.raises(ValueError, match=rf"spells {re.escape(USER)}.*rendered prompt.*parse_special=True or False"):
        tok.encode(text)
    assert tok.encode(text, parse_special=True) == [0, tok.backend.marks[USER], *tok.encode("hi", add_bos=False)]
    assert tok.decode(tok.encode(text, parse_special=False)) == text


def test_decoded_text_keeps_its_ids_until_it_is_changed():
    tok, other = example_tokenizer(), Tokenizer.from_folder(EXAMPLE, example_config())
    ids = [0, tok.backend.marks[USER], *tok.encode(THINK, add_bos=False, parse_special=False), 1]
    text = tok.decode(ids)
    assert text == BOS + USER + THINK + EOS
    assert tok.encode(text) == tok.encode(text, parse_special=True) == tok.encode(text, add_special_tokens=False) == ids
    assert tok.encode(tok.decode(ids[1:])) == ids and tok.encode(tok.decode(ids[1:]), add_bos=False) == ids[1:]
    for changed in (text + "x", text[:-1], str(text), pickle.loads(pickle.dumps(text))):
        with pytest.raises(ValueError, match="rendered prompt"):
            tok.encode(changed)
    with pytest.raises(ValueError, match="rendered prompt"):
        other.encode(text)
    assert type(tok.decode(tok.encode("hi", add_bos=False))) is str  # nothing to keep


def test_added_tokens_not_flagged_special_are_marks_too(tmp_path):
    def unflag(data):
        for token in data["added_tokens"]:
            token["special"] = token["normalized"] = False
            if token["content"] == THINK:
                token["normalized"] = True

    tok = Tokenizer.from_folder(edited(tmp_path, unflag), example_config())
    for mark in (THINK, USER):
        assert tok.encode(mark, parse_special=False) == example_tokenizer().encode(mark, parse_special=False)
        assert tok.encode(mark, parse_special=True) == [0, tok.backend.marks[mark]]


def test_an_added_token_of_white_space_is_vocabulary(tmp_path):
    def add(data):
        data["added_tokens"].append({**data["added_tokens"][-1], "id": 2048, "content": "   ", "special": False})

    config = plain_config(2049, bos_token_id=0, eos_token_id=1)
    tok = Tokenizer.from_folder(edited(tmp_path, add), config)
    assert tok.encode("a   b", add_bos=False)[1] == 2048


def test_decode_hides_every_special_token_or_writes_every_one():
    """Marks, bos, eos and pad alike; words that spell one are no token of it."""
    tok = example_tokenizer()
    hi, spelled = (tok.encode(words, add_bos=False, parse_special=False) for words in ("hi", THINK))
    ids = [0, tok.backend.marks[USER], *hi, tok.backend.marks[THINK], *spelled, 2, 1]
    assert tok.decode(ids, skip_special_tokens=True) == "hi" + THINK
    assert tok.decode(ids) == tok.decode(np.array(ids)) == BOS + USER + "hi" + THINK + THINK + PAD + EOS
    assert tok.decode(1) == EOS and tok.batch_decode([[1], hi], skip_special_tokens=True) == ["", "hi"]
    assert tok.special_ids == set(tok.backend.marks.values()) | {tok.bos_id, tok.eos_id}
    for bad in (-1, 2048):
        with pytest.raises(ValueError, match=f"{bad}.*2047"):
            tok.decode([bad])


@pytest.mark.parametrize("skip", [True, False])
def test_decode_equals_the_tokenizers_library_for_random_ids(skip):
    tok, rng = example_tokenizer(), random.Random(0)
    raw = RawTokenizer.from_file(str(EXAMPLE / "tokenizer.json"))
    for _ in range(2000):
        ids = [rng.randrange(rng.choice([3, 260, 2048])) for _ in range(rng.randrange(12))]
        assert tok.decode(ids, skip) == raw.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("text", [MIXED, "", " ", "\n\t x  ", "\x00", "\ufffd", "e\u0301"])
def test_text_survives_the_round_trip(text):
    tok = example_tokenizer()
    assert tok.decode(tok.encode(text), skip_special_tokens=True) == text
    assert tok.decode(tok.encode(text)) == BOS + text


def test_no_text_is_a_clear_error():
    with pytest.raises(TypeError, match="bytes"):
        example_tokenizer().encode(b"hi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"surrogate '\\ud800' at character 2"):
        example_tokenizer().encode("hi\ud800")


def test_truncation_padding_and_dropout_in_the_file_are_ignored(tmp_path):
    def cut(data):
        data["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        data["padding"] = {
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 2, "pad_type_id": 0, "pad_token": "<｜▁pad▁｜>",
        }  # fmt: skip
        data["model"]["dropout"] = 0.9

    tok = Tokenizer.from_folder(edited(tmp_path, cut), example_config())
    text = "import tempfile, unittest, warnings"
    for special in (False, True):
        assert tok.encode(text, parse_special=special) == example_tokenizer().encode(text)


def test_a_template_in_the_file_adds_no_second_bos(tmp_path):
    def add(data):
        data["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [0], "tokens": [BOS]}},
        }

    tok = Tokenizer.from_folder(edited(tmp_path, add), example_config())
    for special in (False, True):
        assert tok.encode("hi", parse_special=special) == example_tokenizer().encode("hi")
        assert 0 not in tok.encode("hi", add_bos=False, parse_special=special)


def test_the_vocabulary_is_checked_against_the_config(tmp_path):
    config = example_config()
    assert len(example_tokenizer()) == 2048
    with pytest.raises(ValueError, match="ids up to 2047.*vocab_size is 2000"):
        Tokenizer.from_folder(EXAMPLE, plain_config(2000, bos_token_id=0, eos_token_id=1))
    larger = Tokenizer.from_folder(EXAMPLE, plain_config(2100, bos_token_id=0, eos_token_id=1))
    assert larger.decode([2099]) == ""  # ids without a token write nothing
    with pytest.raises(ValueError, match="bos_token_id is 5.*is id 0"):
        Tokenizer.from_folder(EXAMPLE, replace(config, bos_token_id=5))
    with pytest.raises(ValueError, match="eos_token_id is 2099 .*no such token"):
        Tokenizer.from_folder(EXAMPLE, plain_config(2100, bos_token_id=0, eos_token_id=2099))
    shutil.copy(EXAMPLE / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<nowhere>"}}')
    with pytest.raises(ValueError, match="<nowhere>"):
        Tokenizer.from_folder(tmp_path, config)


def test_every_eos_is_a_token_and_the_one_that_the_files_name_stands_for_them(tmp_path):
    config = example_config()
    user = example_tokenizer().backend.marks["<\uff5cUser\uff5c>"]
    tok = Tokenizer.from_folder(EXAMPLE, replace(config, eos_token_id=(user, 1)))
    assert (tok.eos_ids, tok.eos_id) == ((user, 1), 1) and tok.eos_token_ids == {user, 1} <= tok.special_ids
    shutil.copy(EXAMPLE / "tokenizer.json", tmp_path)
    assert Tokenizer.from_folder(tmp_path, replace(config, eos_token_id=(user, 1))).eos_id == user
    with pytest.raises(ValueError, match=rf"eos_token_id is \[{user}, 9\] in the config, but eos is id 1 in "):
        Tokenizer.from_folder(EXAMPLE, replace(config, eos_token_id=(user, 9)))
    with pytest.raises(ValueError, match="eos_token_id is 2099 .*no such token"):
        Tokenizer.from_folder(EXAMPLE, plain_config(2100, bos_token_id=0, eos_token_id=(1, 2099)))


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", "not JSON"),
        (b'{"model": ', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", 'no "model"'),
        (b'{"model": {"type": "BPE"}, "decoder": null}', "decoder"),
        (b'{"model": {"type": "BPE"}, "decoder": {"type": "WordPiece"}}', "WordPiece"),
        (b'{"model": {"type": "nope"}, "decoder": {"type": "ByteLevel"}}', "not a valid tokenizer.json"),
    ],
)
def test_a_malformed_tokenizer_json_is_named(tmp_path, content, expected):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=expected) as caught:
        Tokenizer.from_folder(tmp_path, example_config())
    assert str(tmp_path / "tokenizer.json") in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"bos_token": 3}'])
def test_a_malformed_tokenizer_config_is_named(tmp_path, content):
    shutil.copy(EXAMPLE / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match="tokenizer_config.json"):
        Tokenizer.from_folder(tmp_path, example_config())


def test_an_added_token_that_the_library_would_renumber_is_refused(tmp_path):
    def shift(data):
        data["added_tokens"][-1]["id"] += 1

    with pytest.raises(ValueError, match="deepseek_image.* the id 2048, where 2047 is next"):
        Tokenizer.from_folder(edited(tmp_path, shift), example_config())


def test_a_folder_without_tokenizer_files_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        Tokenizer.from_folder(tmp_path, example_config())


def test_transformers_is_not_needed():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "from tensorfold.config import ModelConfig; from tensorfold.text.tokenizer import Tokenizer\n"
        f"print(len(Tokenizer.from_folder({str(EXAMPLE)!r}, ModelConfig.from_folder({str(EXAMPLE)!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2048"
