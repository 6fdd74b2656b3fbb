"""Proofs of kernels, one folder a family with the same files everywhere; joined to kernels by name. Knows no gate.

reference.py: float64 truth and bound.   stated.py: every bit, in the order that the source states.   cases.py: inputs.
mistakes.py: what must turn a gate red.   alone.py, where there is one: kernels that no model launches, kept to judge by
themselves what launched kernels are made of. A kernel's truth, order and inputs are the functions of its name.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from tensorfold.kernels import families
from tensorfold.kernels.kernel import Kernel
from tensorfold.proof.proof import Proof

__all__ = ["all_proofs", "get"]


@cache
def all_proofs() -> dict[str, Proof]:
    """The proof of every kernel by name, in alphabetical order of families."""
    launched = {family: {k.name: k for k in kernels} for family, kernels in families().items()}
    found: dict[str, Proof] = {}
    for family in sorted({m.name for m in pkgutil.iter_modules(__path__)} | launched.keys()):
        if find_spec(f"{__name__}.{family}") is None:
            raise ImportError(f"no proof of the kernels in tensorfold/kernels/{family}: make {__name__}.{family}")
        for kernel in (*launched.get(family, {}).values(), *_alone(family)):
            if kernel.name in found:
                raise ValueError(f"two kernels are named {kernel.name}; the second is in {family}")
            found[kernel.name] = _joined(family, kernel)
    return found


def get(name: str) -> Proof:
    """The proof of the kernel of that name; KeyError lists the names there are."""
    proofs = all_proofs()
    if name not in proofs:
        raise KeyError(f"no kernel '{name}'; there are: {', '.join(proofs)}")
    return proofs[name]


def _part(family: str, part: str) -> ModuleType:
    return import_module(f"{__name__}.{family}.{part}")


def _alone(family: str) -> tuple[Kernel, ...]:
    """The family's kernels that no model launches."""
    there = find_spec(f"{__name__}.{family}.alone") is not None
    return tuple(_part(family, "alone").KERNELS) if there else ()


def _joined(family: str, kernel: Kernel) -> Proof:
    reference, stated, cases, mistakes = (_part(family, p) for p in ("reference", "stated", "cases", "mistakes"))
    name = kernel.name
    return Proof(
        kernel=kernel,
        reference=getattr(reference, name),
        stated=getattr(stated, name),
        bound=reference.BOUNDS[name],
        mistakes=mistakes.MISTAKES[name],
        cases=getattr(cases, name),
        row_inputs=cases.ROWS[name],
        rows_apart=name not in getattr(cases, "ROWS_SEE_ALL", ()),
        once=getattr(cases, "ONCE", {}).get(name, tuple),
        far=getattr(cases, "FAR_CASES", {}).get(name, tuple),
    )
