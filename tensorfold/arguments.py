"""Checks of what a caller passes: whole numbers, numbers, flags, words, paths; knows no keyword and no limit."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class ParameterError(ValueError):
    """An argument has a value that cannot be used; the message names the argument and the value."""


class ParameterTypeError(ParameterError, TypeError):
    """An argument has a value of the wrong type; both a ValueError and a TypeError."""


def whole(value: Any) -> int | None:
    """The int that a Python or numpy integer is; None for anything else, bool among it."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int of low..high. Raises ParameterTypeError or ParameterError naming the argument."""
    number = whole(value)
    if number is None:
        raise ParameterTypeError(f"{name}={shown(value)} must be an integer, not {type(value).__name__}")
    if number < low or (high is not None and number > high):
        limits = f"at least {low}" if high is None else f"in {low}..{high}"
        raise ParameterError(f"{name}={number} must be {limits}")
    return number


def integers(name: str, value: Any, low: int, high: int) -> list[int]:
    """`value`, a sequence or array, as ints of low..high. Raises ParameterTypeError or ParameterError."""
    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes)):
        raise ParameterTypeError(f"{name}={shown(value)} must be a list of integers, not {type(value).__name__}")
    return [integer(f"{name}[{i}]", item, low, high) for i, item in enumerate(items)]


def number(name: str, value: Any) -> float:
    """`value` as a float, NaN and infinities among it. Raises ParameterTypeError, or ParameterError if too large."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ParameterTypeError(f"{name}={shown(value)} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"{name}={shown(value)} is too large") from None


def flag(name: str, value: Any) -> bool:
    """`value` as a bool; numpy's are taken, 0 and 1 are not. Raises ParameterTypeError."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterTypeError(f"{name}={shown(value)} must be True or False, not {type(value).__name__}")
    return bool(value)


def flag_or_number(name: str, value: Any) -> bool | float:
    """`value` as a bool, or a float of at least 0, infinity among it. Raises ParameterTypeError or ParameterError."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    found = number(name, value)
    if not found >= 0:
        raise ParameterError(f"{name}={shown(value)} must be True, False, or a number of at least 0")
    return found


def word(name: str, value: Any, known: Sequence[str]) -> str:
    """`value`, one of the known words. Raises ParameterError listing them."""
    if not isinstance(value, str) or value not in known:
        raise ParameterError(f"{name}={shown(value)} is not one of {', '.join(known)}")
    return value


def path(name: str, value: Any) -> Path:
    """`value` as a path, `~` expanded. Raises ParameterTypeError."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise ParameterTypeError(f"{name}={shown(value)} must be a str or a Path, not {type(value).__name__}")
    return Path(os.path.expanduser(value))  # leaves the name of an unknown user as it is


def shown(value: Any, most: int = 60) -> str:
    """A value's repr for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
