"""Backends on which some operation gives a row other bits when it shares its launch; knows no check."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from tensorfold.backend.rows import row_wise


def row_wise_operations(base: type) -> dict[str, tuple[str, ...]]:
    """Every operation of a backend that promises rows of their own, with the names of its arguments that hold rows."""
    found = {}
    for name, method in inspect.getmembers(base, inspect.isfunction):
        if hasattr(method, "__wrapped__") and method.__qualname__.startswith(base.__name__):
            found[name] = inspect.getclosurevars(method).nonlocals["names"]
    return found


def crowded(base: type, *operations: str, more_than: int = 1, seen: list[int] | None = None) -> type:
    """A backend like `base` whose `operations` turn the last bit of a result, or shift integers along their row, when
    more than so many rows share a launch; `seen` collects the rows of each launch."""
    rows_of = row_wise_operations(base)
    return type("Crowded", (base,), {name: _planted(base, name, rows_of[name], more_than, seen) for name in operations})


def _planted(base: type, name: str, rows_of: tuple[str, ...], more_than: int, seen: list[int] | None) -> Any:
    right = inspect.unwrap(getattr(base, name))

    def planted(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = right(self, *args, **kwargs)
        rows = next(_arrays(out)).shape[0]
        if seen is not None:
            seen.append(rows)
        return _turned(out) if rows > more_than else out

    planted.__name__, planted.__signature__ = name, inspect.signature(right)  # type: ignore[attr-defined]
    return row_wise(*rows_of)(planted)


def _arrays(value: Any) -> Iterator[mx.array]:
    if isinstance(value, mx.array):
        yield value
    elif value is not None:
        for part in value:
            yield from _arrays(part)


def _turned(value: Any) -> Any:
    """The last bit of one part turned: of the first that is an array."""
    if isinstance(value, mx.array):
        if value.dtype == mx.int32 and value.ndim > 1:
            return mx.roll(value, 1, -1)  # rows and blocks stay in range
        words = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[value.itemsize]
        return (value.view(words) ^ 1).view(value.dtype)
    first = next(i for i, part in enumerate(value) if part is not None)
    parts = [_turned(part) if i == first else part for i, part in enumerate(value)]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
