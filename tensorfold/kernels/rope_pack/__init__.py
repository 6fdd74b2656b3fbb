"""Rows normed or not, turned and packed for a cache, in one launch; index queries too. Knows no cache and no layer.

Source: the model's specification, sections 2 and 5. A composition of `rms_norm`, `rope` and a format's pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import act_quant_fp4_e4m3, act_quant_fp4_e8m0, act_quant_fp8, code_ties, inputs, rms_norm, rope
from tensorfold.kernels.exact import f32
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

_FORMATS = {"window": act_quant_fp8, "compressed": act_quant_fp4_e4m3, "key": act_quant_fp4_e8m0}
KINDS = tuple(_FORMATS)


def packed_bytes(kind: str, d: int) -> int:
    """Bytes of a packed row of d elements; ValueError where there is no such kind."""
    if kind not in KINDS:
        raise ValueError(f"norm_rope_pack: kind {kind!r}, expected one of {', '.join(KINDS)}")
    return {"window": d + d // 32, "compressed": d // 2 + d // 16, "key": d // 2 + d // 32}[kind]


def plan(arrays: Sequence[Any], geometry: Geometry, kind: str = "window", norm: bool = True) -> Launch:
    """x [R, (H,) D], w [D] bfloat16, table [R, RD / 2, 2], eps [1] float32 -> packed uint8 [R, (H,) bytes].

    Without `norm` w and eps are not read; w then is any bfloat16 array of 8 elements or more.
    """
    x, w, table, _ = arrays
    shape, turned = tuple(x.shape), 2 * table.shape[1]
    rows, d, heads = shape[0], shape[-1], shape[1] if len(shape) == 3 else 1
    fits = tuple(w.shape) == (d,) if norm else int(np.prod(w.shape)) >= 8
    angles = tuple(table.shape) == (rows, turned // 2, 2) and 8 <= turned <= d
    if len(shape) not in (2, 3) or not fits or not angles or d % 32:
        raise ValueError(
            f"norm_rope_pack: x {shape}, w {tuple(w.shape)} and table {tuple(table.shape)} do not fit (norm={norm})"
        )
    width = packed_bytes(kind, d)
    groups = min(geometry["G"], -(-d // geometry["V"] // 32))
    template = {
        "H": heads, "D": d, "RD": turned, "G": groups, "V": geometry["V"], "FORM": KINDS.index(kind), "NORM": norm,
    }  # fmt: skip
    grid, threads = (heads * 32 * groups, rows, 1), (32 * groups, 1, 1)
    return Launch(template, grid, threads, ((*shape[:-1], width),), (mx.uint8,))


def norm_rope_pack(
    x: mx.array, w: mx.array | None, table: mx.array, eps: mx.array, *, kind: str, backend: str
) -> mx.array:
    """bfloat16 [R, (H,) D] -> packed uint8 [R, (H,) bytes]; normed by w [D] unless it is None, turned by `table`."""
    given = x if w is None else w
    return KERNELS[0](x, given, table, eps, backend=backend, kind=kind, norm=w is not None)[0]


def _before(x: Array, w: Array, table: Array, eps: Array, norm: bool) -> Array:
    y = rms_norm.stated(x.reshape(-1, x.shape[-1]), w, eps)[0] if norm else x
    heads = y.reshape(len(x), -1, x.shape[-1])
    return rope.stated(heads, table, np.arange(len(x)))[0].reshape(x.shape)


def reference(x: Array, w: Array, table: Array, eps: Array, kind: str = "window", norm: bool = True) -> list[Array]:
    """The format's truth of the bfloat16 values that rms_norm and rope state."""
    return _FORMATS[kind].reference_pack(_before(x, w, table, eps, norm))


def stated(x: Array, w: Array, table: Array, eps: Array, kind: str = "window", norm: bool = True) -> list[Array]:
    """rms_norm, rope, then the format's pack."""
    return _FORMATS[kind].stated_pack(_before(x, w, table, eps, norm))


@dataclass(frozen=True)
class _Use:
    """Where a kind of row is made: heads (0: none), width, turned dims, normed."""

    kind: str
    heads: int
    d: int
    turned: int
    norm: bool
    rows: int = 2


_USES = (
    *(_Use("key", h, d, t, False) for h, d, t in ((4, 32, 16), (4, 64, 32))),
    _Use("key", 32, 128, 64, False, 1),
    *(_Use("key", 0, d, t, True) for d, t in ((32, 16), (64, 32), (128, 64))),
    *(_Use("compressed", 0, d, t, False) for d, t in ((64, 16), (64, 32), (512, 64))),
    *(_Use("window", 0, d, t, True) for d, t in ((64, 16), (64, 32), (512, 64))),
    _Use("key", 3, 96, 32, False, 16),
    _Use("key", 0, 96, 32, True),
    _Use("compressed", 0, 96, 96, False),
    _Use("window", 0, 352, 48, True, 16),
)


def cases() -> list[Case]:
    """Values where orders show; every use in every config, two with rows; extremes and any bits in every kind."""
    eps, found = np.array([1e-20], f32), []
    forms = {"window": code_ties.FP8, "compressed": code_ties.FP4_E4M3, "key": code_ties.FP4_E8M0}
    table, draw = rope.turns(128, 32), inputs.Draw(90)
    for kind, form in forms.items():
        x = code_ties.pairs(91, 8, 64, form)
        arrays = x, x[0], code_ties.turning(92, x, form), eps
        found.append(Case(f"order of the turn, {kind}", arrays, {"kind": kind, "norm": False}))
        x, w = code_ties.normed(93, 128, 192, float(eps[0]), form)
        found.append(Case(f"order of the norm, {kind}", (x, w, table, eps), {"kind": kind}))
        x = np.concatenate([inputs.extremes_bf16(96), draw.any_bf16(32, 96)])
        for norm in (False, True):
            arrays = x, draw.any_bf16(96), table[: len(x)], eps
            found.append(Case(f"extreme {kind}{' normed' * norm}", arrays, {"kind": kind, "norm": norm}))
    for n, use in enumerate(_USES):
        draw = inputs.Draw(n + 70)
        shape = (use.rows, use.heads, use.d) if use.heads else (use.rows, use.d)
        table = rope.turns(200, use.turned)[draw.integers(0, 200, use.rows)]
        name = f"{use.kind} {'x'.join(map(str, shape[1:]))}/{use.turned}{' normed' * use.norm}"
        arrays = draw.bf16(*shape, scale=3.0), draw.bf16(use.d), table, eps
        found.append(Case(name, arrays, {"kind": use.kind, "norm": use.norm}, rows=use.rows == 16))
    return found


KERNELS = (
    Kernel(
        name="norm_rope_pack",
        path=Path(__file__).with_name("norm_rope_pack.metal"),
        inputs=("x", "w", "table", "eps"),
        outputs=("packed",),
        geometries=({"G": 4, "V": 4}, {"G": 8, "V": 2}, {"G": 1, "V": 8}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "codes and scales are integers and must be equal; the bfloat16 values before them are what rms_norm and "
            "rope state and their own contracts bound",
            ulps=0.0,
        ),
        controls=(
            # mistakes inside a part are planted where it stands alone
            act_quant_fp8.PACK_CONTROL,
            act_quant_fp4_e4m3.PACK_CONTROL,
            act_quant_fp4_e8m0.PACK_CONTROL,
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control("angles of the first row", "table + row * uint(RD)", "table"),
            Control(
                "angles of the next head",
                "row = threadgroup_position_in_grid.y, line",
                "row = threadgroup_position_in_grid.y + threadgroup_position_in_grid.x, line",
                backends=("host",),
            ),
            Control(
                "keys scaled as compressed rows",
                "fp4_e4m3_scale<V>(v) : fp4_e8m0_scale<V>(v)",
                "fp4_e4m3_scale<V>(v) : fp4_e4m3_scale<V>(v)",
            ),
            Control("not rounded before the turn", "v[i] = p_round_bf(e);", "v[i] = e;", file="turned.h"),
            Control("first of a pair not rounded after the turn", "v[i] = p_round_bf(v[i]);", "", file="turned.h"),
            Control(
                "pairs start one early",
                "at + i >= uint(D - RD)",
                "at + i + 2u >= uint(D - RD)",
                file="turned.h",
                backends=("host",),
            ),
            Control("threads past the end kept", "if (at >= uint(D)) continue;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("x", "table"),
    ),
)
