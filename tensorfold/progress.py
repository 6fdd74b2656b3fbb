"""Progress bars: in terminals and notebooks, and nowhere else unless asked for; knows no model."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

SLOW_S = 2.0  # work that is done sooner shows no bar


def wanted(asked: bool | None = None) -> bool:
    """Whether a bar is shown: as asked, by default where stderr is a terminal or a notebook shows it.
    Never without a stderr that can be written to."""
    try:
        terminal = sys.stderr.isatty()
    except ValueError:
        return False  # closed
    except AttributeError:
        terminal = False  # none, or an object of the caller's own
    if not hasattr(sys.stderr, "write"):
        return False
    return asked if asked is not None else terminal or _in_notebook()


def bar(total: int, unit: str, what: str, shown: bool, delay: float = 0.0) -> tqdm[Any]:
    """A bar of `total` units, for `with`; `update(n)` moves it. With a delay, in seconds, it shows itself after that
    and goes when it is closed."""
    return _kind(shown)(total=total, unit=unit, desc=what, disable=not shown, delay=delay, leave=not delay)


@cache
def _kind(shown: bool) -> type[tqdm[Any]]:
    if not shown:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress")  # a notebook without widgets gets a bar of letters
        from tqdm.auto import tqdm as auto

    return auto


def _in_notebook() -> bool:
    """As tqdm.auto tells it; IPython in a terminal, or a kernel's library in a script, is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
