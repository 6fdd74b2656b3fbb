"""Operations row by row: for devices whose operations give a row other bits among others, and to find such operations.

Knows no operation by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.backend.base import Columns


def row_wise(*names: str) -> Callable[[Callable], Callable]:
    """Marks the arguments whose first axis is rows; with `by_row` the method runs once a row and its results are
    joined. Where `dependent` is a set, it runs both ways and adds its name if the bits differ."""

    def decorate(method: Callable) -> Callable:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.by_row and self.dependent is None:
                return method(self, *args, **kwargs)
            bound = signature.bind(self, *args, **kwargs).arguments
            rows = _rows(bound[names[0]])
            if rows < 2:
                return method(self, *args, **kwargs)
            each = [method(**{k: _row(v, i) if k in names else v for k, v in bound.items()}) for i in range(rows)]
            joined = _join(each)
            if self.dependent is None:
                return joined
            together = method(self, *args, **kwargs)
            if not same_bits(together, joined):
                self.dependent.add(method.__name__)
            return together

        return run

    return decorate


def _rows(value: Any) -> int:
    return value.shape[0] if isinstance(value, mx.array) else _rows(value[0])


def _row(value: Any, i: int) -> Any:
    """Row i of an argument; runs of columns are cut by their places alone."""
    if isinstance(value, mx.array):
        return value[i : i + 1]
    if isinstance(value, Columns):
        return value._replace(places=value.places[i : i + 1])
    if isinstance(value, list):
        return [_row(v, i) for v in value]
    if isinstance(value, tuple):
        return _like(value, [_row(v, i) for v in value])
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
