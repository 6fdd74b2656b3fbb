"""What judges one kernel: truth, stated order, bound, inputs and planted mistakes. Knows no gate and no backend.

A kernel is what runs, `kernels.kernel.Kernel`; its proof holds it, so that a mistake can be planted in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tensorfold.kernels.kernel import Array, Geometry, Kernel, Launch
from tensorfold.kernels.source import SourceError, included_files
from tensorfold.proof.far import Holed

ALL = ("host", "cuda", "metal")


@dataclass(frozen=True)
class Bound:
    """|value - truth| <= ulps of the output's type + relative * |truth| + absolute * scale + tiny, and why.

    `scale(*inputs, **options)` gives, for each output, an array that broadcasts against it (default 1). `tiny` is what
    flushing to zero may cost: 2^-126 for the result, and as much for every flushed term of a sum.
    Outputs of integer type must be equal whatever the bound says.
    """

    reason: str
    ulps: float = 0.5
    relative: float = 0.0
    absolute: float = 0.0
    tiny: float = 2.0**-126
    scale: Callable[..., Sequence[Array]] | None = None


@dataclass(frozen=True)
class Mistake:
    """A planted mistake: `find` stands exactly once in the kernel's text (or in `file`), `replace` takes its place."""

    name: str
    find: str
    replace: str
    file: str | None = None
    backends: tuple[str, ...] = ALL


@dataclass(frozen=True)
class Case:
    """Inputs of one run: numpy arrays in the kernel's order (bfloat16 as uint16 bits) and options of its plan.

    `rows=True` also runs rows of this case alone, some neighbours of them, in other places and at shifted addresses.
    `bounded=False` where float32 itself leaves its range, so that only order and containment are judged.
    """

    name: str
    arrays: tuple[Array, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: bool = False
    bounded: bool = True


@dataclass(frozen=True)
class Far:
    """A case whose rows the kernel is given far apart: `arrays` stand for the case's, its outputs are the case's.

    `cut` is (front, all): a launch of `all` rows (or columns) of which the first `front` lie before the outputs' hole;
    only their threadgroups run. None: outputs are whole and every threadgroup runs.
    """

    case: Case
    arrays: tuple[Array | Holed, ...]
    cut: tuple[int, int] | None = None
    geometry: Geometry | None = None


@dataclass(frozen=True)
class Proof:
    """A kernel and what judges it.

    reference(*arrays, **options) -> float64 (or integer) arrays, one an output: the published mathematics.
    stated(*arrays, **options) -> the very bits of every output, float32 operations in the order the source states.
    cases() -> the inputs the contract runs. once() -> inputs of real sizes, which run once in every geometry and are in
    no digest. far() -> cases whose places lie far apart; with `rows_apart` the rows of cases do, too. `row_inputs` name
    the inputs whose first axis is rows; every output then has rows first too. `row_counts` are the numbers of rows it
    is launched with. `known` maps a part of a finding's text to the reason why it is accepted.
    """

    kernel: Kernel
    reference: Callable[..., Sequence[Array]]
    stated: Callable[..., Sequence[Array]]
    bound: Bound
    mistakes: tuple[Mistake, ...]
    cases: Callable[[], Sequence[Case]]
    row_inputs: tuple[str, ...] = ()
    row_counts: tuple[int, ...] = tuple(range(1, 17))
    rows_apart: bool = True
    once: Callable[[], Sequence[Case]] = tuple
    far: Callable[[], Sequence[Far]] = tuple
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.kernel.name

    def launch(self, case: Case, geometry: Geometry | None = None) -> Launch:
        """The kernel's launch of a case under `geometry` (default: the first)."""
        return self.kernel.launch(case.arrays, geometry, **case.options)

    def files(self) -> dict[str, str]:
        """The texts of the kernel's source and of what it includes, by file name."""
        kernel = self.kernel
        return {p.name: kernel.overrides.get(p.name, p.read_text("ascii")) for p in included_files(kernel.path)}

    def planted(self, mistake: Mistake) -> Proof:
        """The same proof of the kernel with a mistake; SourceError unless the text to replace stands exactly once."""
        file = mistake.file or self.kernel.path.name
        text = self.files().get(file)
        count = -1 if text is None else text.count(mistake.find)
        if text is None or count != 1:
            where = f"{count} times in {file}" if count >= 0 else f"but {file} is not part of the kernel"
            raise SourceError(f"{self.name}: mistake '{mistake.name}' must match exactly once, matches {where}")
        return self.with_texts({file: text.replace(mistake.find, mistake.replace)})

    def with_texts(self, texts: Mapping[str, str]) -> Proof:
        """The same proof of the kernel with these texts in place of files, by name."""
        return replace(self, kernel=replace(self.kernel, overrides={**self.kernel.overrides, **texts}))
