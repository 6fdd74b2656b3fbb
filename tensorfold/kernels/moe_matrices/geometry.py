"""moe_up and moe_down: geometries, all of equal bits, and which a launch uses. Knows no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorfold.kernels.experts import geometry as experts_geometry
from tensorfold.kernels.experts.geometry import GEOMETRIES
from tensorfold.kernels.kernel import Geometry

_OF_EXPERTS = ("TN", "PF", "RG")  # of a geometry of the gathered experts, beside its SIMD groups


def _geometry(experts: Geometry, ahead: int = 0) -> Geometry:
    """The routed part as it is alone, the shared part with two rows a lane; `ahead`: whether it loads the next ones."""
    return {"G": experts["WN"], **{n: experts[n] for n in _OF_EXPERTS}, "LK8": 16, "TN8": 2, "PF8": 1, "DB8": ahead}


# the shared part is far smaller, and with more rows a lane it takes so many registers that fewer threads of the routed
# part run beside each other
_EVERY, _FEW, _ODD = (_geometry(GEOMETRIES[i], ahead) for i, ahead in ((0, 0), (1, 0), (3, 1)))
UP = (_EVERY, _ODD)
DOWN = (_EVERY, _FEW, _ODD)


def _chosen(have: Sequence[Geometry], experts: Geometry) -> int:
    """The geometry with this routed part, or the first."""
    fits = [i for i, g in enumerate(have) if all(g[key] == experts[key] for key in _OF_EXPERTS)]
    return (fits or [0])[0]


def choose_up(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """What the table of the routed part says."""
    return _chosen(UP, GEOMETRIES[experts_geometry.choose_up(backend, arrays)])


def choose_down(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """What the table of the routed part says."""
    return _chosen(DOWN, GEOMETRIES[experts_geometry.choose_down(backend, arrays)])
