"""Whether a checkpoint and a context can fit this machine, told before anything is allocated; knows no caches."""

from __future__ import annotations

import os

import mlx.core as mx

from tensorfold.description import GIB, Description
from tensorfold.engine.engine import CapacityError


def total_bytes() -> int | None:
    """Memory that weights and caches share with the system; None where the device has its own, or nobody can tell."""
    if mx.default_device() != mx.Device(mx.cpu) and not mx.metal.is_available():
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(about: Description, max_context: int | None) -> None:
    """Raises CapacityError for weights, or a context that was asked for, beyond what the machine has."""
    total = total_bytes()
    if total is None:
        return
    if about.needs(1) > total:
        hint = ": draft=False leaves the drafter out" if about.drafter else ""
        raise CapacityError(
            f"{about.path} needs {about.needs(1) / GIB:.1f} GiB of memory for its weights and one slot, "
            f"and this machine has {total / GIB:.1f} GiB{hint}"
        )
    if max_context is not None and about.needs(max_context) > total:
        raise CapacityError(
            f"max_context={max_context} needs {about.needs(max_context) / GIB:.1f} GiB of memory with the weights, "
            f"and this machine has {total / GIB:.1f} GiB: a context of at most {about.tokens_in(total)} fits"
        )
