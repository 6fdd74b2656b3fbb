"""The prompt argument: one or many, every kind of sequence, and each refusal by position and value."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.text.prompts import parse_prompts
from tests.text.helpers import example_config, example_tokenizer

IMAGE = 2047


def parse(prompt: Any, **options: bool) -> tuple[list[list[int]], bool]:
    return parse_prompts(prompt, example_tokenizer(), example_config(), **options)


HI = example_tokenizer().encode("hi")


@pytest.mark.parametrize(
    "prompt",
    [[5, 6], (5, 6), range(5, 7), np.array([5, 6]), np.array([5, 6], np.uint16), mx.array([5, 6]), [np.int64(5), 6]],
)
def test_a_flat_sequence_of_ints_is_one_prompt(prompt):
    ids, many = parse(prompt)
    assert (ids, many) == ([[5, 6]], False)
    assert all(type(i) is int for i in ids[0])


def test_a_str_is_one_prompt_and_follows_the_tokenizers_rules():
    assert parse("hi") == ([HI], False)
    assert parse("hi", add_bos=False) == ([HI[1:]], False)
    assert parse("") == ([[0]], False)
    assert parse("<think>", parse_special=True) == ([[0, 2044]], False)


@pytest.mark.parametrize(
    "prompt, expected",
    [
        (["hi"], [HI]),
        ([[5]], [[5]]),
        (("hi", [5, 6], (7,), np.array([8]), mx.array([9])), [HI, [5, 6], [7], [8], [9]]),
        ([np.array([5]), "hi"], [[5], HI]),
        (np.array([[5, 6], [7, 8]]), [[5, 6], [7, 8]]),
    ],
)
def test_a_list_of_prompts_is_many_even_of_one(prompt, expected):
    assert parse(prompt) == (expected, True)


@pytest.mark.parametrize(
    "prompt", [[], (), [[]], [[5], []], np.array([], int), mx.array([], mx.int32), np.zeros((1, 0), int)]
)
def test_nothing_is_refused(prompt):
    with pytest.raises(ValueError, match="empty"):
        parse(prompt)


@pytest.mark.parametrize("prompt", ["", [""], ["hi", ""]])
def test_an_empty_text_without_bos_is_refused(prompt):
    with pytest.raises(ValueError, match="no tokens"):
        parse(prompt, add_bos=False)


@pytest.mark.parametrize(
    "prompt, error, words",
    [
        ([5, 2048], ValueError, "the prompt has id 2048 at position 1: ids are 0 to 2047"),
        ([5, -1], ValueError, "id -1 at position 1"),
        ([[5], [6, 9999]], ValueError, "prompt 1 has id 9999 at position 1"),
        ([2**70], ValueError, f"id {2**70} at position 0"),
        ([5, IMAGE], ValueError, "image id 2047 at position 1"),
        (["hi", [IMAGE]], ValueError, "prompt 1 has the image id 2047 at position 0"),
        ([5, True], TypeError, r"True \(bool\) at position 1"),
        ([True], TypeError, "position 0"),
        (np.array([True]), TypeError, "bool"),
        ([5, np.bool_(True)], TypeError, "position 1"),
        ([5, 1.0], TypeError, r"1.0 \(float\) at position 1"),
        (np.array([1.0]), TypeError, "position 0"),
        ([5, "hi"], TypeError, r"'hi' \(str\) at position 1"),
        ([5, [6]], TypeError, r"\[6\] \(list\) at position 1"),
        (["hi", 5], TypeError, r"prompt 1 is 5 \(int\)"),
        ([[5], [[6]]], TypeError, r"prompt 1 has \[6\] \(list\) at position 0"),
        ([None], TypeError, "None"),
        (None, TypeError, "None"),
        (5, TypeError, r"5 \(int\)"),
        (b"hi", TypeError, "bytes"),
        ([b"hi"], TypeError, "bytes"),
        ({5: 6}, TypeError, "dict"),
        ({5}, TypeError, "set"),
        (np.array(5), TypeError, "ndarray"),
        (["ok", "\ud800"], ValueError, "prompt 1: .*surrogate"),
    ],
)
def test_a_wrong_prompt_is_refused_by_position_and_value(prompt, error, words):
    with pytest.raises(error, match=words):
        parse(prompt)


def test_an_image_mark_is_text_until_parsed_and_then_refused():
    mark = "a<｜deepseek_image｜>"
    assert IMAGE not in parse(mark, parse_special=False)[0][0]
    with pytest.raises(ValueError, match=f"image id {IMAGE}"):
        parse([mark], parse_special=True)
