"""Gate 3 at the sizes of real models, once each: rows of prompts, columns of long contexts, memory beyond 4 GiB.

Small cases leave the upper bits of every count and every offset zero. Knows no report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array, Geometry, Launch
from tensorfold.proof.far import Holed
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case, Far, Proof

PROMPTS = (79, 512)  # rows: of a prompt's last launch, an odd number, and of its others
_BEYOND = 5 * 2**34  # elements of the widest array, so that those a twentieth as wide too have 2^32
_GRID = 2**32 - 1  # threads along an axis


@dataclass(frozen=True)
class Real:
    """What is run at real sizes beside rows of prompts, each with what its outputs must be."""

    once: list[tuple[Case, list[Array]]]
    far: list[tuple[Far, list[Array]]]


def prepare_real(proof: Proof) -> Real:
    """Long contexts and far places of the kernel's own, and far rows of its cases with rows."""
    far = [*proof.far()]
    if proof.rows_apart:
        far += [rows_apart(proof, case) for case in row_cases(proof, proof.cases())]
    return Real([(c, _stated(proof, c)) for c in proof.once()], [(f, _stated(proof, f.case)) for f in far])


def real_launches(proof: Proof, cases: Sequence[Case], real: Real) -> list[tuple[Sequence[Any], Launch]]:
    """Everything that is launched, to be built together."""
    of_prompts = [(c.arrays, proof.launch(c, g)) for r in row_cases(proof, cases) for _, c, g in prompts(proof, r)]
    of_once = [(c.arrays, proof.launch(c, g)) for c, _ in real.once for g in proof.kernel.geometries]
    of_far = [(f.arrays, proof.kernel.launch(f.arrays, f.geometry, **f.case.options)) for f, _ in real.far]
    return [*of_prompts, *of_once, *of_far]


def with_rows(proof: Proof, case: Case, rows: Sequence[int]) -> Case:
    """The case with these of its rows, in this order; a row may come more than once."""
    named = zip(proof.kernel.inputs, case.arrays)
    arrays = (np.ascontiguousarray(a[list(rows)]) if n in proof.row_inputs else a for n, a in named)
    return replace(case, arrays=tuple(arrays))


def row_cases(proof: Proof, cases: Sequence[Case]) -> list[Case]:
    """Those whose rows stand for themselves."""
    return [case for case in cases if case.rows and proof.row_inputs]


def prompts(proof: Proof, case: Case) -> Iterator[tuple[list[int], Case, Geometry]]:
    """(rows of the case, a launch of so many, geometry): an odd number in every geometry, a whole prompt launch in the
    one that Metal takes."""
    total, kernel = _rows(proof, case), proof.kernel
    for count in PROMPTS:
        rows = Draw(count).integers(0, total, count).tolist()
        made = with_rows(proof, case, rows)
        chosen = kernel.geometry("metal", made.arrays, **case.options)
        yield from ((rows, made, g) for g in ([chosen] if count == PROMPTS[-1] else kernel.geometries))


def rows_apart(proof: Proof, case: Case, count: int = 16) -> Far:
    """`count` of the case's rows in a launch of many more: a hole parts their halves in every array of rows."""
    rows = (np.arange(count) % _rows(proof, case)).tolist()
    near = with_rows(proof, case, rows)

    def holed(total: int) -> tuple[Array | Holed, ...]:
        named = zip(proof.kernel.inputs, near.arrays)
        return tuple(Holed(a, count // 2, total - count) if n in proof.row_inputs else a for n, a in named)

    def most(geometry: Geometry) -> int:
        """Rows, a multiple of 16: as many as reach far enough, up to what a grid counts."""
        one, two = (proof.kernel.launch(a, geometry, **case.options) for a in (near.arrays, holed(2 * count)))
        added = max(b - a for a, b in zip(one.grid, two.grid))
        named = zip(proof.kernel.inputs, near.arrays)
        widest = max([a.size for n, a in named if n in proof.row_inputs] + [math.prod(s) for s in one.shapes])
        return min(_BEYOND * count // widest, _GRID * count // added) // 16 * 16

    geometry = max(proof.kernel.geometries, key=most)
    return Far(near, holed(most(geometry)), (count // 2, count), geometry)


def _rows(proof: Proof, case: Case) -> int:
    """How many rows the case has."""
    return len(case.arrays[proof.kernel.inputs.index(proof.row_inputs[0])])


def _stated(proof: Proof, case: Case) -> list[Array]:
    return [np.ascontiguousarray(y) for y in proof.stated(*case.arrays, **case.options)]
