"""The row-by-row way of calling an operation, for devices whose operations give a row other bits among others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from tensorfold.backend.base import Columns


def _row(value: Any, i: int) -> Any:
    """Row i of an argument; runs of columns are cut by their places alone."""
    if isinstance(value, mx.array):
        return value[i : i + 1]
    if isinstance(value, list):
        return [_row(v, i) for v in value]
    if isinstance(value, Columns):
        return value._replace(places=value.places[i : i + 1])
    return value


def row_wise(*names: str) -> Callable[[Callable], Callable]:
    """Marks the arguments whose first axis is rows; with `by_row` the method runs once a row and its results are
    joined."""

    def decorate(method: Callable) -> Callable:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.by_row:
                return method(self, *args, **kwargs)
            bound = signature.bind(self, *args, **kwargs).arguments
            rows = bound[names[0]].shape[0]
            if rows < 2:
                return method(self, *args, **kwargs)
            each = [method(**{k: _row(v, i) if k in names else v for k, v in bound.items()}) for i in range(rows)]
            if isinstance(each[0], tuple):
                return tuple(mx.concatenate(list(column)) for column in zip(*each))
            return mx.concatenate(each)

        return run

    return decorate
