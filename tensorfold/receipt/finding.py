"""What one check of the suite found; knows no check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """A promise, whether it held, and what was compared or where it broke."""

    name: str
    ok: bool
    detail: str


def holds(name: str, broken: Iterable[str], compared: str) -> Finding:
    """A finding from what is broken: none of it, and `compared` is the detail."""
    faults = list(broken)
    return Finding(name, not faults, "; ".join(faults[:5]) if faults else compared)


def guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """What a check finds; one that cannot end is a broken promise with the error's words."""
    try:
        return check()
    except Exception as error:
        return [Finding(name, False, f"{type(error).__name__}: {error}")]
