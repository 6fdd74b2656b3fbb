"""Plans, float64 truth and stated float32 order of the gathered experts' products. Knows no case and no control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.codes import E2M1, UE8M0, unpack_nibbles
from tensorfold.kernels.exact import F32, f32, flush, fma, load, store_bf16
from tensorfold.kernels.kernel import Array, Geometry, Launch, TemplateValue, dtype_of

BLOCK = 32
# WN SIMD groups, TN rows of a matrix a lane, PF blocks loaded ahead, RG pairs that share a read of a weight
GEOMETRIES: tuple[Geometry, ...] = (
    {"WN": 4, "TN": 4, "PF": 1, "RG": 1},
    {"WN": 8, "TN": 2, "PF": 3, "RG": 1},
    {"WN": 4, "TN": 4, "PF": 3, "RG": 1},
    {"WN": 2, "TN": 1, "PF": 1, "RG": 2},
)


def lanes_of(k: int) -> int:
    """Running sums of a row: the largest power of two that divides its blocks, 32 at most."""
    blocks = k // BLOCK
    return min(32, blocks & -blocks)


def tiling(
    name: str, arrays: Sequence[Any], geometry: Geometry, matrices: int, paired: bool, n: int, width: int
) -> tuple[dict[str, TemplateValue], int, tuple[int, int]]:
    """(template but for picks, grid's x, (R, picks)); ValueError where shapes do not fit."""
    x, ids, _, place, origin = arrays
    planes = dtype_of(x) == mx.float32
    k = x.shape[-2] * 16 if planes and len(x.shape) > 2 else x.shape[-1]
    lead = tuple(ids.shape) if paired else tuple(ids.shape[:1])
    wanted = (*lead, 4, k // 16, 4) if planes else (*lead, k)
    if len(ids.shape) != 2 or tuple(x.shape) != wanted or k % BLOCK or k < BLOCK:
        raise ValueError(
            f"{name}: x {tuple(x.shape)} and ids {tuple(ids.shape)} do not fit: expected ids [R, picks] and x "
            f"[{'R, picks' if paired else 'R'}, K] bfloat16, or [.., 4, K / 16, 4] float32, K a multiple of {BLOCK}"
        )
    if len(place.shape) != 3 or tuple(place.shape[1:]) != (matrices, 2) or tuple(origin.shape) != (1,):
        raise ValueError(
            f"{name}: place {tuple(place.shape)} and origin {tuple(origin.shape)}, expected [E, {matrices}, 2] and [1]"
        )
    if width not in (4, 8, 16) or n < 1:
        raise ValueError(f"{name}: rows n {n} and load width {width}, expected n >= 1 and a width of 4, 8 or 16 bytes")
    lk = lanes_of(k)
    ahead = geometry["PF"] if k // BLOCK // lk % geometry["PF"] == 0 else 1
    tile = geometry["WN"] * (32 // lk) * geometry["TN"]
    template: dict[str, TemplateValue] = {"X": dtype_of(x), "K": k, "N": n}
    template |= {"LK": lk, "W": width, "WN": geometry["WN"], "TN": geometry["TN"], "PF": ahead, "RG": geometry["RG"]}
    return template, -(-n // tile) * matrices * 32 * geometry["WN"], (ids.shape[0], ids.shape[1])


def plan_up(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16) -> Launch:
    """x [R, K] bfloat16 or [R, 4, K / 16, 4] float32, ids int32 [R, picks] (0 .. E - 1), shard uint8 bytes,
    place uint64 [E, 2, 2], origin uint64 [1] -> gate, up bfloat16 [R, picks, n].

    x: exact values of act_quant_fp8, as act_quant_fp8_round or act_quant_fp8_planes writes them and matvec_fp8 reads
    them, so that the routed and the shared experts read one array. They need no decoding in the inner loop.
    place: for w1, then w3, the byte offsets in the file of codes [n, K / 2] (even index in the low nibble) and of
    scales [n, K / 32]; origin: where in that file `shard` begins, in bytes. width: the largest of 16, 8 and 4 that
    divides the address of every expert's codes. `shard` may have any shape, since a dimension is limited to 2^31.
    A row of a result has the same bits for any rows beside it, geometry, width and place.
    """
    template, across, (rows, picks) = tiling("experts_up", arrays, geometry, 2, False, n, width)
    order = ("X", "K", "N", "PICKS", "LK", "W", "WN", "TN", "PF", "RG")
    template = {name: picks if name == "PICKS" else template[name] for name in order}
    shape, threads = (rows, picks, n), 32 * geometry["WN"]
    return Launch(template, (across, rows * picks, 1), (threads, 1, 1), (shape, shape), (mx.bfloat16, mx.bfloat16))


def plan_down(arrays: Sequence[Any], geometry: Geometry, n: int, width: int = 16) -> Launch:
    """x [R, picks, K] bfloat16 or [R, picks, 4, K / 16, 4] float32, ids int32 [R, picks], shard,
    place uint64 [E, 1, 2], origin uint64 [1] -> y bfloat16 [R, picks, n]; everything else as in `plan_up`."""
    template, across, (rows, picks) = tiling("experts_down", arrays, geometry, 1, True, n, width)
    threads = 32 * geometry["WN"]
    return Launch(template, (across, rows * picks, 1), (threads, 1, 1), ((rows, picks, n),), (mx.bfloat16,))


def choose_up(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """Four rows of a matrix a lane: the rows of a block are read once for all four."""
    return 0


def choose_down(backend: str, arrays: Sequence[Any], **options: Any) -> int:
    """One row: blocks loaded ahead and fewer rows a lane, as its pairs alone would leave too few threadgroups."""
    return 1 if arrays[1].shape[0] == 1 else 0


def weight(shard: Array, place: Array, origin: Array, n: int, k: int) -> tuple[Array, Array]:
    """Codes uint8 [n, K] and scale bytes uint8 [n, K / 32] of the matrix at `place` (codes, scales)."""
    code, scale = (int(p) - int(origin[0]) for p in place)
    flat = shard.reshape(-1)
    packed = flat[code : code + n * k // 2].reshape(n, k // 2)
    return unpack_nibbles(packed), flat[scale : scale + n * k // BLOCK].reshape(n, k // BLOCK)


def planes_of(x: Array) -> Array:
    """bfloat16 bits [.., K] as float planes [.., 4, K / 16, 4]: element 16 c + 4 j + e stands at [j, c, e]."""
    return np.ascontiguousarray(np.moveaxis(load(x).reshape(*x.shape[:-1], -1, 4, 4), -2, -3))


def _values(x: Array) -> F32:
    """x as float32 [.., K]."""
    if x.dtype == np.uint16:
        return load(x)
    return np.moveaxis(x, -3, -2).reshape(*x.shape[:-3], -1)


def _each(arrays: Sequence[Array], n: int, one: Callable[[F32, Array, Array], Array]) -> list[Array]:
    """`one(x [K], codes [n, K], scale bytes [n, K / 32])` -> [n] for every pair, an output a matrix: [R, picks, n]."""
    given, ids, shard, place, origin = arrays
    x = _values(given)
    found: list[Array] = []
    k = x.shape[-1]
    for matrix in range(place.shape[1]):
        weights = {int(e): weight(shard, place[int(e), matrix], origin, n, k) for e in np.unique(ids)}
        rows = [
            [one(row if row.ndim == 1 else row[i], *weights[int(e)]) for i, e in enumerate(picked)]
            for row, picked in zip(x, ids)
        ]
        found.append(np.array(rows))
    return found


def _decoded(w: Array, factors: Array) -> Array:
    """w [n, K] in float64, exact."""
    with np.errstate(invalid="ignore"):
        return E2M1[w].astype(np.float64) * np.repeat(UE8M0[factors].astype(np.float64), BLOCK, -1)


def _product(x: F32, w: Array, factors: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.sum(_decoded(w, factors) * x.astype(np.float64), -1)


def _sizes(x: F32, w: Array, factors: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.sum(np.abs(_decoded(w, factors) * x.astype(np.float64)), -1)


def _ordered(x: F32, w: Array, factors: Array) -> Array:
    """bfloat16 bits [n] of one row in the stated order."""
    n, k = w.shape
    lanes = lanes_of(k)
    v, m = x.reshape(-1, BLOCK), E2M1[w].reshape(n, -1, BLOCK)
    with np.errstate(all="ignore"):
        p: F32 = (m[..., 0] * v[:, 0]).astype(f32)
        for i in range(1, BLOCK):
            p = fma(m[..., i], v[:, i], p)
        p, s = p.reshape(n, -1, lanes), UE8M0[factors].reshape(n, -1, lanes)
        total = np.zeros((n, lanes), f32)
        for step in range(p.shape[1]):
            total = flush(fma(p[:, step], s[:, step], total))
        while total.shape[-1] > 1:
            total = flush(total[:, 0::2] + total[:, 1::2])
    return store_bf16(total[:, 0])


def reference_up(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float64 truth."""
    return _each(arrays, n, _product)


def reference_down(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float64 truth."""
    return _each(arrays, n, _product)


def stated_up(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float32, in the order the source states."""
    return _each(arrays, n, _ordered)


def stated_down(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float32, in the order the source states."""
    return _each(arrays, n, _ordered)


def magnitude(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """The sums of |w x|."""
    return _each(arrays, n, _sizes)
