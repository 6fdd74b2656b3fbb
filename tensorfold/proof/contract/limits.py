"""What the GPUs of M1 to M5 allow a launch. Knows no gate: it reads launches and text.

How many threads a kernel's registers leave room for, only Apple's compiler knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorfold.kernels.kernel import Array, Kernel, Launch
from tensorfold.proof.host.mlx_text import generate
from tensorfold.proof.host.program import describe


@dataclass(frozen=True)
class Chip:
    """Limits of one generation: Metal GPU family, and what its feature table gives."""

    name: str
    family: int
    threads: int = 1024
    threadgroup_bytes: int = 32768
    buffers: int = 31
    language: tuple[int, int] = (3, 2)


CHIPS = (Chip("M1", 7), Chip("M2", 8), Chip("M3", 9), Chip("M4", 9), Chip("M5", 10))
# features of the language that need more than the oldest chip: pattern, family, name
_FEATURES = (
    (r"\batomic_ulong\b|\batomic<ulong>", 9, "64-bit atomics"),
    (r"\bray_data\b|\bintersector\b", 9, "ray tracing"),
    (r"\btensor<|\bmpp::", 10, "tensor operations"),
)
_NEWER_LANGUAGE = (r"\bmpp::|<metal_tensor>", (4, 0))


def problems(kernel: Kernel, launches: Iterable[tuple[Sequence[Array], Launch]], shared_bytes: int) -> list[str]:
    """What would not run on one of the chips, each once. `shared_bytes` is the threadgroup memory of a group."""
    found: dict[str, None] = {}
    features: dict[str, None] = {}
    for arrays, launch in launches:
        threads = launch.threadgroup[0] * launch.threadgroup[1] * launch.threadgroup[2]
        text = generate(kernel, describe(arrays), launch.template, launch.dtypes)
        features[text.text] = None
        buffers = len(arrays) + len(text.shapes) + len(launch.shapes)
        if threads % 32:
            found[f"threadgroup {launch.threadgroup} is not a multiple of 32 threads"] = None
        for chip in CHIPS:
            if threads > chip.threads:
                found[f"{threads} threads a threadgroup, {chip.name} allows {chip.threads}"] = None
            if buffers > chip.buffers:
                found[f"{buffers} buffers, {chip.name} allows {chip.buffers}"] = None
    for chip in CHIPS:
        if shared_bytes > chip.threadgroup_bytes:
            found[f"{shared_bytes} bytes of threadgroup memory, {chip.name} allows {chip.threadgroup_bytes}"] = None
        for pattern, family, feature in _FEATURES:
            if chip.family < family and any(re.search(pattern, text) for text in features):
                found[f"{feature} need Apple family {family}, {chip.name} has {chip.family}"] = None
        if chip.language < _NEWER_LANGUAGE[1] and any(re.search(_NEWER_LANGUAGE[0], text) for text in features):
            found[f"needs Metal {_NEWER_LANGUAGE[1]}, {chip.name} is promised {chip.language}"] = None
    return list(found)
