"""attend_scores and attend_values: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.attend import stated
from tensorfold.proof.families.attend.reference import BLOCK, Columns, columns_of_rows, window_rows
from tensorfold.proof.families.attend.stated import scores, softmax
from tensorfold.proof.families.rope.cases import turns
from tensorfold.proof.far import apart, moved_in_two
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.codes import to_e4m3
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case, Far

# the inputs of both kernels, as the sources declare them
RUNS = ("window", "window_new", "window_places", "packed", "packed_new", "packed_places")
NAMES = ("q", "table", *RUNS, "sink", "scale", "sizes")
SCORED, VALUED = ("q", "table", *RUNS, "scale", "sizes"), ("scores", "table", *RUNS, "sink", "sizes")


def columns(window: int, compressed: int) -> int:
    """Columns of scores of so many places: whole blocks."""
    return -(-(window + compressed) // BLOCK) * BLOCK


def window(draw: inputs.Draw, rows: int, d: int) -> Array:
    """Random window rows uint8 [rows, D + D / 32] of values near one."""
    return np.concatenate(
        [to_e4m3(draw.normal(rows, d, scale=100.0)), draw.integers(119, 122, rows, d // 32).astype(np.uint8)], 1
    )


def compressed(draw: inputs.Draw, rows: int, d: int) -> Array:
    """Random compressed rows uint8 [rows, D / 2 + D / 16] of values near one."""
    return np.concatenate([draw.bytes(rows, d // 2), draw.integers(40, 58, rows, d // 16).astype(np.uint8)], 1)


def case(
    name: str, heads: int, d: int, counts: tuple[int, int, int], seed: int, rows: bool = False, scale: float = 1.0
) -> Case:
    """`counts` = rows, window columns, compressed columns; windows of 1 to W positions, 0 to K selected rows."""
    r, w, k = counts
    draw = inputs.Draw(seed)
    near, far = (2 * w, r), (3 * max(k, 8), 5)
    window_places = draw.integers(0, sum(near), r, w)
    packed_places = draw.integers(0, sum(far), r, max(k, 1))
    for i in range(r):
        window_places[i, w - (i * 5) % w :] = -1
        packed_places[i, k - (i * 7) % max(k, 1) :] = -1
    window_places[:, 0], packed_places[0, : min(k, 3)] = near[0] + np.arange(r), (far[0] - 1, far[0], sum(far) - 1)[:k]
    if r > 2:
        packed_places[2], window_places[2, 0] = -1, near[0] - 1
    positions = inputs.Draw(seed + 1000).integers(0, 200, r)
    table = turns(200, 16 if d == 64 else 64)[positions]
    arrays = (
        draw.bf16(r, heads, d, scale=scale), table,
        window(draw, near[0], d), window(draw, near[1], d), window_places,
        compressed(draw, far[0], d), compressed(draw, far[1], d), packed_places, draw.normal(heads),
        np.array([d**-0.5], f32), np.array([near[0], w, far[0], k, columns(w, max(k, 1))], np.int32),
    )  # fmt: skip
    return Case(name, arrays, rows=rows)


def not_turned(rows: int, dims: int) -> Array:
    """A table that turns nothing, where a case is built on the very values of queries or outputs."""
    return np.tile(np.array([1, 0], f32), (rows, dims // 2, 1))


def changed(made: Case, name: str, **arrays: Any) -> Case:
    """A case with some arrays replaced, by name."""
    found = list(made.arrays)
    for key, value in arrays.items():
        found[NAMES.index(key)] = value
    return Case(name, tuple(found))


def cancelling_values() -> Case:
    """Queries of zero, so P is 1 everywhere; large values and their negatives, so the order of columns shows."""
    made = case("", 8, 64, (3, 64, 64), 41)
    draw = inputs.Draw(42)
    rows = window(draw, 128, 64)
    rows[:, 64:] = draw.integers(119, 140, 128, 2)
    rows[1::2] = rows[0::2]
    rows[1::2, :64] ^= 0x80
    order = np.argsort(draw.words(3, 128), 1)[:, :64].astype(np.int32)
    return changed(made, "cancelling values", q=np.zeros((3, 8, 64), np.uint16), window=rows, window_places=order)


def cancelling_scores(apart: int) -> Case:
    """Large products that cancel those `apart` elements on, and small ones that do not, so the order of a score's sum
    shows: 64 apart they cancel within one of its four sums, 16 apart between two."""
    made = case("", 2, 128, (3, 64, 0), 43)
    draw = inputs.Draw(44)
    rows = window(draw, 128, 128)
    rows[:, 128:] = 137
    codes = rows[:, :128].reshape(128, -1, 2, apart)
    codes[:, :, 0] = codes[:, :, 1] ^ 0x80
    rows[:, :128] = codes.reshape(128, 128)
    rows[:, 5:128:8] = to_e4m3(draw.normal(128, 16, scale=0.002))
    q = draw.bf16(3, 2, 128)
    halves = q.reshape(3, 2, -1, 2, apart)
    halves[..., 1, :] = halves[..., 0, :]
    return changed(made, f"cancelling scores {apart}", q=q, window=rows, table=not_turned(3, 64))


def divisor_ties(rows: int = 12) -> Case:
    """Outputs at ties of bfloat16, so that the last bit of the divisor shows.

    Elements 0..31 alone make the scores; of elements 32..63 the last eight columns are chosen, each four bits more of
    what is missing to a tie times the divisor of head 0.
    """
    draw, w = inputs.Draw(45), 128
    q = draw.bf16(rows, 8, 64, scale=2.0)
    q[..., 32:] = 0
    cache = window(draw, rows * w, 64)
    places = np.arange(rows * w, dtype=np.int32).reshape(rows, w)
    made = changed(case("", 8, 64, (rows, w, 0), 46), "divisor at ties", q=q, table=not_turned(rows, 16))
    sink, scale, held = made.arrays[-3:]
    sizes = np.array([len(cache), w, held[2], 0, columns(w, 1)], np.int32)

    def held_columns() -> Columns:
        return columns_of_rows((cache, cache, places, cache, cache, places), sizes)

    cols = held_columns()
    soft = softmax(scores(q, cols, scale), cols.used, sink)
    p = soft.p[:, 0].astype(np.float64)
    p[:, :64] *= soft.shrink[1][:, :1]
    values = cols.keys[..., 32:].astype(np.float64)
    values[:, w - 8 : w] = 0
    have = np.einsum("rc,rcd->rd", p, values)
    divisor = soft.divisor[:, :1].astype(np.float64)
    missing = inputs.bf16_ties(have / divisor) * divisor - have
    for i in range(8):
        column = w - 8 + i
        wanted = missing / p[:, column, None]
        largest = np.maximum(np.abs(wanted).max(1), 2.0**-22)
        byte = np.clip(np.ceil(np.log2(largest / 448)) + 127, 96, 250).astype(np.uint8)
        unit = np.ldexp(1.0, byte.astype(int) - 127)[:, None]
        codes = to_e4m3((wanted / unit).astype(f32))
        cache[places[:, column], 32:64], cache[places[:, column], 65] = codes, byte
        missing = missing - p[:, column, None] * window_rows(cache[places[:, column]])[:, 32:]
    return changed(made, made.name, q=q, window=cache, window_places=places, sizes=sizes)


def special_codes() -> Case:
    """Every kind of code and scale: NaN, zero scales of both kinds, the largest, a scale below 96; an empty row."""
    made = case("", 8, 64, (6, 32, 32), 47)
    arrays = dict(zip(NAMES, (a.copy() for a in made.arrays)))
    near, far = arrays["window"], arrays["packed"]
    arrays["window_places"][:, :6] = np.arange(6)[:, None] * 2 + np.arange(6)[None] // 3
    arrays["packed_places"][:, 5] = np.arange(6)
    near[0, 3], near[2, 64], near[4, 65], near[6, 64], near[8, :2] = 0x7F, 255, 0, 30, (0x7E, 0x80)
    far[1, 32], far[3, 33], far[4, :32], far[5, 34] = 0x7F, 0, 0x88, 0x7E
    arrays["window_places"][5], arrays["packed_places"][5] = -1, -1
    return changed(made, "special codes", **arrays)


def only(names: tuple[str, ...], made: Case, bounded: bool = True) -> Case:
    """The arrays of `names` alone; "scores" are those of the others, as their kernel gives them."""
    found = dict(zip(NAMES, made.arrays))
    if "scores" in names:
        found["scores"] = stated.attend_scores(*(found[name] for name in SCORED))[0]
    return Case(made.name, tuple(found[name] for name in names), rows=made.rows, bounded=bounded)


def _common() -> list[Case]:
    """Head sizes of all configs; rows of every fill; one block, many, a tail; special codes."""
    return [
        case("8 x 64", 8, 64, (16, 32, 32), 51, rows=True),
        case("8 x 64, long", 8, 64, (3, 40, 170), 52, scale=2.0),
        special_codes(),
        case("8 x 64, window", 8, 64, (3, 133, 0), 53),
        case("8 x 512", 8, 512, (2, 40, 50), 54),
        case("64 x 512", 64, 512, (1, 20, 50), 55),
    ]


def _extreme() -> Case:
    """Queries of every kind of bfloat16, beyond what scores can hold."""
    wide = np.broadcast_to(inputs.extremes_bf16(64)[:, None], (16, 8, 64)).copy()
    return changed(case("", 8, 64, (16, 32, 20), 56), "extreme queries", q=wide)


def attend_scores() -> list[Case]:
    """Beside the common ones: sums that cancel within a running sum and between two."""
    more = [cancelling_scores(64), cancelling_scores(16)]
    return [*(only(SCORED, c) for c in [*_common(), *more]), only(SCORED, _extreme(), bounded=False)]


def attend_values() -> list[Case]:
    """Beside the common ones: values that cancel, outputs at ties, large scores, sinks of every kind, many columns."""
    base = case("", 8, 64, (16, 32, 20), 56)
    sink = np.array([0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 80], f32)
    more = [
        cancelling_values(),
        divisor_ties(),
        changed(base, "extreme sinks", sink=sink),
        _extreme(),
        changed(base, "steep", q=inputs.Draw(57).bf16(16, 8, 64, scale=60.0)),
        case("8 x 512, long", 8, 512, (1, 40, 290), 58),
    ]
    return [only(VALUED, c) for c in [*_common(), *more]]


def _long(names: tuple[str, ...]) -> list[Case]:
    """Window and compressed columns beyond 8 bits."""
    return [only(names, case("8 x 64, many columns", 8, 64, (1, 300, 2100), 61))]


def _far(names: tuple[str, ...]) -> list[Far]:
    """Places behind 2^32 bytes of every cache, and of this round's rows."""
    found = []
    for near in (case("8 x 64, far", 8, 64, (3, 40, 60), 59), case("8 x 512, far", 8, 512, (2, 20, 30), 60)):
        given: dict[str, Any] = dict(zip(NAMES, near.arrays))
        for run in ("window", "packed"):
            cache, fresh = apart(given[run], 2**29), apart(given[f"{run}_new"], 2**29)
            places = moved_in_two(given[f"{run}_places"], cache, fresh)
            given |= {run: cache, f"{run}_new": fresh, f"{run}_places": places}
        given["sizes"] = given["sizes"] + np.array([2**29, 0, 2**29, 0, 0], np.int32)
        made = only(names, near)
        given["scores"] = made.arrays[0]
        found.append(Far(made, tuple(given[name] for name in names)))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "attend_scores": ("q", "table", "window_places", "packed_places"),
    "attend_values": ("scores", "table", "window_places", "packed_places"),
}
FAR_CASES = {"attend_scores": partial(_far, SCORED), "attend_values": partial(_far, VALUED)}
ONCE = {"attend_scores": partial(_long, SCORED), "attend_values": partial(_long, VALUED)}
