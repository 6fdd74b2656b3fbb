"""The one error of a checkpoint that is not what it should be, and how lists of faults are worded."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 8


class CheckpointError(ValueError):
    """A checkpoint folder, index, shard or tensor that cannot be trusted; names file, tensor, expected and found."""


def listing(items: Sequence[str]) -> str:
    """The first few items, and how many more there are."""
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def show(value: object, limit: int = 120) -> str:
    """A short repr of untrusted data."""
    try:
        text = repr(value)
    except ValueError:
        return "an integer with thousands of digits"
    return text if len(text) <= limit else text[: limit - 3] + "..."
