"""Progress bars: in terminals and notebooks, and nowhere else unless asked for; knows no model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def wanted(asked: bool | None = None) -> bool:
    """Whether a bar is shown: as asked, by default where stderr is a terminal or a notebook shows it."""
    if sys.stderr is None:
        return False
    return asked if asked is not None else _terminal() or "ipykernel" in sys.modules


def bar(total: int, unit: str, what: str, shown: bool) -> tqdm[Any]:
    """A bar of `total` units, for `with`; `update(n)` moves it."""
    from tqdm.auto import tqdm

    return tqdm(total=total, unit=unit, desc=what, disable=not shown)


def _terminal() -> bool:
    isatty = getattr(sys.stderr, "isatty", None)
    try:
        return bool(isatty and isatty())
    except ValueError:  # a closed stream
        return False
