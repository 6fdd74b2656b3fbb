"""Kernels, one folder a family: each folder's `KERNELS` are found here by name. Knows no model, no slots, no text."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tensorfold.kernels.kernel import Bound, Case, Control, Geometry, Kernel, Launch

__all__ = ["Bound", "Case", "Control", "Geometry", "Kernel", "Launch", "all_kernels", "get"]


@cache
def all_kernels() -> dict[str, Kernel]:
    """Every registered kernel by name, in alphabetical order of families."""
    found: dict[str, Kernel] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if not module.ispkg:
            continue
        for kernel in import_module(f"{__name__}.{module.name}").KERNELS:
            if kernel.name in found:
                raise ValueError(f"two kernels are named {kernel.name}; the second is in {module.name}")
            found[kernel.name] = kernel
    return found


def get(name: str) -> Kernel:
    """The kernel of that name; KeyError lists the names there are."""
    kernels = all_kernels()
    if name not in kernels:
        raise KeyError(f"no kernel '{name}'; there are: {', '.join(kernels)}")
    return kernels[name]
