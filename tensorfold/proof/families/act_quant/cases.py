"""The quantisers, act_quant_*: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tensorfold.proof.families.act_quant.reference import BOUNDS
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.codes import E2M1, E4M3
from tensorfold.proof.numerics.exact import F32, Bits, f32, load, store_bf16
from tensorfold.proof.proof import Case


def ladder(table: F32, largest_scales: Sequence[float], block: int) -> Bits:
    """[n, 4 * block] blocks that meet every code, every tie and the ties' neighbours, at each of the given scales.

    The first element of each block is the scale times the largest code, so that the scale is known.
    """
    grid = table.astype(np.float64)
    middle = store_bf16((grid[1:] + grid[:-1]) / 2)
    marks = np.concatenate([store_bf16(grid), middle, middle + 1, middle - 1]).astype(np.uint16)
    values = load(np.concatenate([marks, marks | 0x8000]))
    values = np.concatenate([values, np.zeros(-len(values) % (block - 1), f32)]).reshape(-1, block - 1)
    lead = np.full((len(values), 1), table[-1], f32)
    one = np.concatenate([lead, values], axis=1)
    rows = store_bf16(np.concatenate([one * f32(scale) for scale in largest_scales])).reshape(-1)
    return np.concatenate([rows, np.zeros(-len(rows) % (4 * block), np.uint16)]).reshape(-1, 4 * block)


def every_bf16() -> Bits:
    """[128, 512]: all bit patterns of bfloat16, neighbours together."""
    return np.arange(1 << 16, dtype=np.uint16).reshape(128, 512)


def _cases(special: Sequence[Case], sizes: Sequence[int], heads: tuple[int, ...]) -> list[Case]:
    """Sizes once, a row-tested odd size and a row-tested [R, H, K], the format's own cases, every bit pattern."""
    found = []
    for k in sizes:
        draw = inputs.Draw(k)
        found.append(Case(f"K{k}", (draw.bf16(16 if k == 96 else 1, k, scale=3.0),), rows=k == 96))
    draw = inputs.Draw(7)
    found.append(Case("heads", (draw.bf16(16, *heads),), rows=True))
    found.append(Case("zeros", (np.zeros((2, 128), np.uint16),)))
    found.append(Case("every bf16", (every_bf16(),)))
    found.append(Case("mixed", (draw.any_bf16(16, 512),)))
    found.append(Case("extreme", (inputs.extremes_bf16(512),)))
    return [*found, *special]


def _scale_edges(largest: float, powers: Sequence[int]) -> Bits:
    """[2, 128]: a power of two times the largest code has its own scale, one bfloat16 step more has the next."""
    edge = np.zeros((2, 128), np.uint16)
    edge[0, ::32] = store_bf16(f32(largest) * np.exp2(np.array(powers, f32)))
    edge[1, ::32] = edge[0, ::32] + 1
    edge[:, 31::32] = edge[:, ::32] | 0x8000
    edge[:, ::32] = 0x8000
    return edge


def _fp8(sizes: Sequence[int]) -> list[Case]:
    """Every width in use; every code, tie and neighbour of a tie at scales from the smallest to the largest."""
    codes = ladder(E4M3[:127], (2.0**-22, 2.0**-3, 1.0, 2.0**100, 2.0**118), 32)
    edge = _scale_edges(448, (-30, -22, 0, 100))
    edge[:, 5::32] = 0x3F80
    return _cases([Case("every code", (codes,)), Case("scale edges", (edge,))], sizes, (3, 128))


def _fp4_e8m0(sizes: Sequence[int]) -> list[Case]:
    """Every width in use; every code, tie and neighbour of a tie at scales from the smallest to the largest."""
    codes = ladder(E2M1[:8], (2.0**-126, 2.0**-120, 2.0**-3, 1.0, 2.0**100, 2.0**124), 32)
    edge = _scale_edges(6, (-126, -22, 0, 124))
    return _cases([Case("every code", (codes,)), Case("scale edges", (edge,))], sizes, (3, 128))


def _fp4_e4m3(sizes: Sequence[int]) -> list[Case]:
    """Every width in use; every element code and tie at every scale; every tie of the scale; values beyond 448 * 6."""
    codes = ladder(E2M1[:8], E4M3[1:127].tolist(), 16)
    grid = E4M3[:127].astype(np.float64)
    middle = store_bf16(6 * (grid[1:] + grid[:-1]) / 2)
    beyond = store_bf16(np.array([2560, 2688, 2704, 2784, 2880, 3000, 1e5, 1e30], f32))
    tops = np.concatenate([middle - 1, middle, middle + 1, beyond]).astype(np.uint16)
    ties = np.tile(tops[:, None], (1, 16))
    ties[:, 1:8] = store_bf16(np.array([1, -2, 0.01, -0.004, 300, 1300, -0.0], f32))
    ties[:, 9:] |= 0x8000
    ties = np.minimum(ties & 0x7FFF, ties[:, :1]) | (ties & 0x8000)
    ties = np.concatenate([ties.reshape(-1), np.zeros(-ties.size % 64, np.uint16)]).reshape(-1, 64)
    return _cases([Case("every code", (codes,)), Case("every tie of the scale", (ties,))], sizes, (3, 64))


act_quant_fp4_e4m3 = partial(_fp4_e4m3, (32, 64, 96, 128, 512))
act_quant_fp4_e4m3_pack = act_quant_fp4_e4m3_round = partial(_fp4_e4m3, (64, 96))
act_quant_fp4_e8m0 = partial(_fp4_e8m0, (32, 64, 96, 128, 256, 4096))
act_quant_fp4_e8m0_pack = act_quant_fp4_e8m0_round = partial(_fp4_e8m0, (64, 96))
act_quant_fp8 = partial(_fp8, (64, 96, 128, 192, 256, 384, 512, 768, 1280, 2304, 5120, 6144, 8192, 15360))
act_quant_fp8_pack = act_quant_fp8_round = act_quant_fp8_planes = partial(_fp8, (64, 96, 512))

# inputs whose first axis is rows
ROWS = dict.fromkeys(BOUNDS, ("x",))
