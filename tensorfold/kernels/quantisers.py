"""What the three activation quantisers share: launch plan, brute-force truth, trial inputs. Knows no single format.

Source: the model's specification, section 2. A block that holds a NaN or an infinity gets a NaN scale, and every code
of it is a zero of its element's sign. An all-zero block has the format's smallest scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels import inputs
from tensorfold.kernels.codes import pack_nibbles
from tensorfold.kernels.exact import Bits, bits, f32, load, store_bf16, wide
from tensorfold.kernels.kernel import Case, Geometry, Launch

Codes = NDArray[np.uint8]


def plan_blocks(
    name: str,
    x: Any,
    geometry: Geometry,
    block: int,
    widths: Callable[[int], Sequence[int]],
    dtype: mx.Dtype = mx.uint8,
) -> Launch:
    """x [..., K] bfloat16 -> outputs [..., width] of `dtype`; every thread holds V neighbours, a row takes P groups."""
    k = x.shape[-1]
    if len(x.shape) < 2 or not k or k % block:
        raise ValueError(f"{name}: x has shape {tuple(x.shape)}, expected [..., K] with K a multiple of {block}")
    rows, lanes = int(np.prod(x.shape[:-1])), k // geometry["V"]
    threads = 32 * min(geometry["G"], -(-lanes // 32))
    parts = -(-lanes // threads)
    shapes = tuple((*x.shape[:-1], width) for width in widths(k))
    template = {"K": k, "V": geometry["V"], "P": parts}
    return Launch(template, (rows * parts * threads, 1, 1), (threads, 1, 1), shapes, (dtype,) * len(shapes))


def blocks_of(x: Bits, block: int) -> NDArray[np.float32]:
    """The loaded values, [..., K / block, block]."""
    return load(x).reshape(*x.shape[:-1], -1, block)


def largest(v: NDArray[np.float32], floor: float) -> NDArray[np.float32]:
    """Largest magnitude of each block and the floor, by bit patterns, so that NaN wins: float32 [..., 1]."""
    top = np.maximum((bits(v) & 0x7FFFFFFF).max(-1, keepdims=True), bits(f32(floor)))
    return top.view(f32)


def zero_codes(v: NDArray[np.float32], sign_bit: int) -> Codes:
    """What a block with a NaN scale holds: a zero of each element's sign."""
    return np.where(np.signbit(v), sign_bit, 0).astype(np.uint8)


def nearest(values: NDArray[np.float64], table: NDArray[np.float32], sign_bit: int) -> Codes:
    """The code of the nearest value among the finite magnitudes of `table` (ascending), ties to the even code."""
    grid = table.astype(np.float64)
    magnitude = np.minimum(np.abs(values), grid[-1])
    above = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    low, high = magnitude - grid[above - 1], grid[above] - magnitude
    code = np.where(low < high, above - 1, np.where(low > high, above, above - above % 2))
    return (code | np.where(np.signbit(values), sign_bit, 0)).astype(np.uint8)


def power_scale(x: Bits, block: int, floor: float, factor: np.float32) -> tuple[Codes, NDArray[np.float64]]:
    """UE8M0 bytes and values [..., K / block, 1] by search: the least power of two >= max |x| times factor."""
    with np.errstate(all="ignore"):
        v = np.abs(wide(x)).reshape(*x.shape[:-1], -1, block)
        wanted = (np.maximum(v.max(-1, keepdims=True), f32(floor)) * np.float64(factor)).astype(f32).astype(np.float64)
    # beyond the last power of two lie infinity and NaN: byte 255
    byte = np.searchsorted(np.ldexp(1.0, np.arange(1, 255) - 127), wanted) + 1
    return byte.astype(np.uint8), np.where(byte == 255, np.nan, np.ldexp(1.0, byte - 127))


def packed_row(codes: Codes, scales: Codes) -> Codes:
    """A packed row: codes, then scales."""
    return np.concatenate([codes, scales], axis=-1)


def packed_nibbles(codes: Codes) -> Codes:
    """Codes of blocks [..., n, block] as bytes of a row [..., n * block / 2]."""
    return pack_nibbles(codes.reshape(*codes.shape[:-2], -1))


def ladder(table: NDArray[np.float32], largest_scales: Sequence[float], block: int) -> Bits:
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


def trial_cases(name: str, special: Sequence[Case], sizes: Sequence[int], heads: tuple[int, ...]) -> list[Case]:
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
