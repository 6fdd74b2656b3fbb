"""What a model launches, one folder a family: texts, plan.py, and geometry.py where a table chooses. Knows no model.

`tensorfold.proof` judges kernels; nothing here knows of it.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tensorfold.kernels import launch
from tensorfold.kernels.kernel import Geometry, Kernel, Launch

__all__ = ["Geometry", "Kernel", "Launch", "all_kernels", "families", "get", "launch"]


@cache
def families() -> dict[str, tuple[Kernel, ...]]:
    """The kernels of every family, in alphabetical order of families."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    return {name: tuple(import_module(f"{__name__}.{name}").KERNELS) for name in names}


@cache
def all_kernels() -> dict[str, Kernel]:
    """Every kernel by name."""
    found: dict[str, Kernel] = {}
    for family, kernels in families().items():
        for kernel in kernels:
            if kernel.name in found:
                raise ValueError(f"two kernels are named {kernel.name}; the second is in {family}")
            found[kernel.name] = kernel
    return found


def get(name: str) -> Kernel:
    """The kernel of that name; KeyError lists the names there are."""
    kernels = all_kernels()
    if name not in kernels:
        raise KeyError(f"no kernel '{name}'; there are: {', '.join(kernels)}")
    return kernels[name]
