"""Operations row by row: for devices whose operations give a row other bits among others, and to find such operations.

Knows no operation by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Columns


def row_wise(*names: str) -> Callable[[Callable], Callable]:
    """Marks the arguments whose first axis is rows; with `by_row` the method runs once a row and its results are
    joined. Where `dependent` is a set, it adds its name if rows of a smaller launch have other bits."""

    def decorate(method: Callable) -> Callable:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.by_row and self.dependent is None:
                return method(self, *args, **kwargs)
            bound = signature.bind(self, *args, **kwargs).arguments
            rows = _count(bound[names[0]])
            if rows < 2:
                return method(self, *args, **kwargs)

            def part(start: int, count: int) -> Any:
                return method(**{k: _rows(v, start, start + count) if k in names else v for k, v in bound.items()})

            if self.dependent is None:
                return _join([part(i, 1) for i in range(rows)])
            whole = method(self, *args, **kwargs)
            if not all(same_bits(_rows(whole, i, i + n), part(i, n)) for i, n in trials(rows, self.trial_counts)):
                self.dependent.add(method.__name__)
            return whole

        return run

    return decorate


def trials(rows: int, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First row and number of rows of the launches that are compared with one of `rows` rows: single rows all over it,
    more rows at its beginning and its end."""
    for n in (n for n in counts if n < rows):
        yield from ((i, n) for i in (range(0, rows, -(-rows // 6)) if n == 1 else (0, rows - n)))


def _count(value: Any) -> int:
    return value.shape[0] if isinstance(value, mx.array) else _count(value[0])


def _rows(value: Any, start: int, stop: int) -> Any:
    """Rows of an argument or a result; runs of columns are cut by their places alone."""
    if isinstance(value, mx.array):
        return value[start:stop]
    if isinstance(value, Columns):
        return value._replace(places=value.places[start:stop])
    if isinstance(value, (list, tuple)):
        return _like(value, [_rows(v, start, stop) for v in value])
    return value


def _join(each: list[Any]) -> Any:
    """The results of single rows as one, part by part."""
    if isinstance(each[0], mx.array):
        return mx.concatenate(each)
    if each[0] is None:
        return None
    return _like(each[0], [_join(list(column)) for column in zip(*each)])


def _like(value: Any, parts: list[Any]) -> Any:
    """The parts as a list, a tuple or the named tuple that `value` is."""
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two results, arrays or equal structures of arrays, have equal bits."""
    if a is None:
        return b is None
    if not isinstance(a, mx.array):
        return all(same_bits(x, y) for x, y in zip(a, b, strict=True))
    words = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[a.itemsize]
    return (
        a.shape == b.shape and a.dtype == b.dtype and np.array_equal(np.array(a.view(words)), np.array(b.view(words)))
    )
