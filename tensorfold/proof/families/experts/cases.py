"""experts_up and experts_down: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.experts.reference import BLOCK, planes_of
from tensorfold.proof.far import apart
from tensorfold.proof.numerics.codes import E4M3, UE8M0
from tensorfold.proof.numerics.exact import mul_flushed, store_bf16
from tensorfold.proof.numerics.inputs import Draw
from tensorfold.proof.proof import Case, Far

# no shard of this size is built: the offsets are those of a file this far in, the array starts there
FAR = 3 * 2**32 + 48
Bytes = Callable[[Draw, tuple[int, ...]], Array]


def bytes_in(low: int, high: int) -> Bytes:
    """Scale bytes low .. high."""
    return lambda draw, shape: draw.integers(low, high + 1, *shape).astype(np.uint8)


def bytes_of(*values: int) -> Bytes:
    """Scale bytes out of a few."""
    return lambda draw, shape: np.array(values, np.uint8)[draw.integers(0, len(values), *shape)]


def random_codes(draw: Draw, shape: tuple[int, ...]) -> Array:
    """e4m3 codes of every finite value."""
    codes = draw.bytes(*shape)
    return np.where(codes & 127 == 127, codes - 1, codes).astype(np.uint8)


W_BYTES, X_BYTES = bytes_in(112, 127), bytes_in(105, 130)
SPECIAL_W, SPECIAL_X = bytes_of(0, 255, *range(100, 128)), bytes_of(0, 255, *range(105, 131))


def shard_of(codes: list[list[Array]], scales: list[list[Array]], width: int, far: int) -> tuple[Array, Array, Array]:
    """(shard, place, origin) of matrices [expert][matrix]: last expert first, scales before codes in every second one,
    codes at `width` modulo 16 (16: at 0), the last byte of a matrix the last of the shard."""
    place = np.zeros((len(codes), len(codes[0]), 2), np.uint64)
    parts: list[Array] = []
    at = 0

    def put(block: Array, remainder: int) -> int:
        nonlocal at
        gap = (remainder - at) % 16
        parts.extend([np.full(gap, 0xFF, np.uint8), block.reshape(-1)])
        at += gap + block.size
        return at - block.size

    for e in reversed(range(len(codes))):
        for m in range(len(codes[0])):
            for which in (1, 0) if (e + m) % 2 else (0, 1):
                block = (codes, scales)[which][e][m]
                place[e, m, which] = put(block, width % 16 if which == 0 else at % 16) + far
    return np.concatenate(parts), place, np.array([far], np.uint64)


def values_of(codes: Array, scales: Array) -> Array:
    """bfloat16 bits [.., K] of e4m3 codes [.., K] under UE8M0 bytes [.., K / 32], exact."""
    return store_bf16(mul_flushed(E4M3[codes], np.repeat(UE8M0[scales], BLOCK, -1)))


def _ids(draw: Draw, rows: int, picks: int, experts: int) -> Array:
    order = np.argsort(draw.words(rows, experts), axis=-1, kind="stable")[:, :picks]
    return np.sort(order, -1).astype(np.int32)


def make(
    name: str, paired: bool, k: int, n: int, picks: int, rows: int, experts: int, *, width: int = 16, far: int = FAR,
    w_bytes: Bytes = W_BYTES, x_bytes: Bytes = X_BYTES, x_codes: Bytes = random_codes, ids: Array | None = None,
    planes: bool = False, seed: int = 0, bounded: bool = True, row_runs: bool = False,
) -> Case:  # fmt: skip
    """One case: random experts, `rows` rows that each go to `picks` of them."""
    draw = Draw(k * 1000 + n * 10 + seed)
    matrices = 1 if paired else 2
    codes = [[draw.bytes(n, k // 2) for _ in range(matrices)] for _ in range(experts)]
    scales = [[w_bytes(draw, (n, k // BLOCK)) for _ in range(matrices)] for _ in range(experts)]
    lead = (rows, picks) if paired else (rows,)
    x = values_of(x_codes(draw, (*lead, k)), x_bytes(draw, (*lead, k // BLOCK)))
    ids = _ids(draw, rows, picks, experts) if ids is None else ids
    arrays = (planes_of(x) if planes else x, ids, *shard_of(codes, scales, width, far))
    return Case(name, arrays, {"n": n, "width": width}, rows=row_runs, bounded=bounded)


def cancelling(name: str, paired: bool, k: int, n: int, picks: int, rows: int, whole_blocks: bool) -> Case:
    """Sums whose large terms cancel, so that what small terms lost to rounding on the way, by the order, is the result.

    Inside blocks: 12 times 448, then 12 times -448 under the same weights, with 8 of the smallest values at random
    places among them. Between blocks: a block and its copy of the other sign, scales of a wide range, random order.
    """
    draw = Draw(k + n + 7)
    matrices, blocks, experts = (1 if paired else 2), k // BLOCK, picks
    lead = (rows, picks) if paired else (rows,)
    places: list[tuple[Array, Array]] = []
    if whole_blocks:
        partner = np.argsort(draw.words(blocks), kind="stable")
        half = blocks // 2
        x = random_codes(draw, (*lead, blocks, BLOCK)) & 0xBF
        x[..., partner[half : 2 * half], :] = x[..., partner[:half], :] ^ 0x80
        sx = np.full((*lead, blocks), 120, np.uint8)
    else:
        orders = np.argsort(draw.words(blocks, BLOCK), axis=-1, kind="stable")
        places = [(np.sort(order[:24]), order[24:]) for order in orders]
        x = np.zeros((*lead, blocks, BLOCK), np.uint8)
        for b, (large, small) in enumerate(places):
            x[..., b, large[:12]], x[..., b, large[12:]] = 0x7E, 0xFE
            x[..., b, small] = draw.integers(1, 8, *lead, 8).astype(np.uint8)
        sx = np.full((*lead, blocks), 127, np.uint8)
    codes, scales = [], []
    for _ in range(experts):
        c = draw.bytes(matrices, n, blocks, BLOCK) & 15
        s = draw.integers(112, 128, matrices, n, blocks).astype(np.uint8)
        if whole_blocks:
            c[..., partner[half : 2 * half], :] = c[..., partner[:half], :]
            s[..., partner[half : 2 * half]] = s[..., partner[:half]]
        else:
            s[...] = 124
            for b, (large, small) in enumerate(places):
                c[..., b, large[:12]] = 6 + (c[..., b, large[:12]] & 1)
                c[..., b, large[12:]] = c[..., b, large[11::-1]]
                c[..., b, small] = 1 + 2 * (c[..., b, small] & 5)
        packed = (c[..., 0::2] | c[..., 1::2] << 4).astype(np.uint8).reshape(matrices, n, k // 2)
        codes.append(list(packed))
        scales.append(list(s))
    ids = np.broadcast_to(np.arange(picks, dtype=np.int32), (rows, picks)).copy()
    arrays = (values_of(x.reshape(*lead, k), sx), ids, *shard_of(codes, scales, 16, 0))
    return Case(name, arrays, {"n": n, "width": 16})


def _common(paired: bool, k: int) -> list[Case]:
    """Rows of every kind at one size: shared and own experts, every load width, special codes and scales, orders."""
    n, picks = 42, 3

    def one(name: str, rows: int, experts: int = 5, **how: Any) -> Case:
        return make(name, paired, k, n, picks, rows, experts, **how)

    distinct = np.arange(12, dtype=np.int32).reshape(4, 3)
    same = np.broadcast_to(np.array([1, 2, 4], np.int32), (16, 3)).copy()
    zeros: Bytes = lambda draw, shape: draw.bytes(*shape) & np.uint8(0x80)  # noqa: E731
    return [
        one(f"rows K{k}", 16, row_runs=True),
        one("planes", 16, planes=True, row_runs=True),
        one("one expert each", 4, 12, ids=distinct),
        one("same experts", 16, ids=same, far=0),
        one("codes at 8 mod 16", 3, width=8),
        one("codes at 4 mod 16", 3, width=4),
        one("every code", 5, x_codes=bytes_in(0, 255)),
        one("special scales", 6, w_bytes=SPECIAL_W, x_bytes=SPECIAL_X),
        one("weight scales 0 and 255", 3, w_bytes=bytes_of(0, 255, 120)),
        one("every scale", 16, w_bytes=bytes_in(0, 255), x_bytes=SPECIAL_X, bounded=False),
        one("every weight scale, bounded", 8, w_bytes=bytes_in(1, 200)),
        one("tiny", 6, w_bytes=bytes_in(1, 4), x_bytes=bytes_in(112, 122)),
        one("large and small rows", 4, x_bytes=bytes_in(40, 210)),
        one("zero rows", 2, x_codes=zeros),
        cancelling("order in a block", paired, k, n, picks, 6, False),
    ]


def experts_up() -> list[Case]:
    """Every hidden size, intermediate size and number of picks in use (N reduced at the real K)."""
    found = _common(False, 256)
    sizes = ((128, 64, 4, 16), (256, 96, 3, 12), (256, 128, 6, 16), (5120, 20, 2, 3))
    found.append(make("one row, two picks", False, 128, 64, 2, 1, 8))
    found += [make(f"K{k} N{n}", False, k, n, picks, 2, experts) for k, n, picks, experts in sizes]
    return [*found, cancelling("order of blocks", False, 5120, 20, 2, 2, True)]


def experts_down() -> list[Case]:
    """Every intermediate and hidden size and number of picks in use (N reduced at the real K)."""
    found = _common(True, 128)
    sizes = ((64, 128, 4, 16), (96, 256, 3, 12), (128, 256, 6, 16), (2304, 20, 2, 3))
    found.append(make("one row, two picks", True, 64, 128, 2, 1, 8))
    found += [make(f"K{k} N{n}", True, k, n, picks, 2, experts) for k, n, picks, experts in sizes]
    return [*found, cancelling("order of blocks", True, 2304, 20, 2, 4, True)]


def far_shard(case: Case) -> Far:
    """The case's later matrices, in the order of the file, 12 GiB behind its first ones; its later experts 2^16 ids."""
    x, ids, shard, place, origin, *more = case.arrays
    inside = place - origin
    held = apart(shard, 3 * 2**32, front=int(np.sort(inside.reshape(-1))[place.size // 2]))
    table = apart(origin + held.moved(inside), 2**16)
    return Far(case, (x, table.moved(ids), held, table, origin, *more))


def far_experts(paired: bool) -> list[Far]:
    """An expert beyond 4 GiB of its shard."""
    return [far_shard(make("far experts", paired, 128, 42, 3, 4, 5))]


def tall(paired: bool) -> list[Case]:
    """Real numbers of rows of a matrix, so that tiles count beyond 8 bits where they are low."""
    k, n = (512, 5120) if paired else (1024, 2304)
    return [make("tall matrices", paired, k, n, 2, 1, 2)]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "experts_up": ("x", "ids"),
    "experts_down": ("x", "ids"),
}
FAR_CASES = {"experts_up": partial(far_experts, False), "experts_down": partial(far_experts, True)}
ROWS_SEE_ALL = ("experts_up", "experts_down")  # a row looks at the choices of all
ONCE = {"experts_up": partial(tall, False), "experts_down": partial(tall, True)}
