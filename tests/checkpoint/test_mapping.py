"""Mapping: views and arrays at every kind of offset, aliased where a device allows it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from shardkit import pack

from tensorfold.checkpoint import Checkpoint
from tensorfold.checkpoint.headers import Entry, read_header
from tensorfold.checkpoint.mapping import ROW, Mapping, metal_wrap

SIZES = {
    "odd": ("I8", [3]),
    "half": ("BF16", [5, 7]),
    "word": ("F32", [3, 3]),
    "more": ("I8", [2 * ROW + 1]),
    "single": ("F32", [1]),
    "scale": ("F8_E8M0", [9, 4]),
    "long": ("BF16", [3, ROW]),
    "none": ("BF16", [0, 4]),
    "fp8": ("F8_E4M3", [ROW, 2]),
    "tail": ("F32", [40]),
}
BYTES = {"I8": 1, "F8_E8M0": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}


def shard(tmp_path: Path, pad: int) -> tuple[Path, dict[str, Entry], bytes]:
    """Tensors of all kinds, behind a header `pad` bytes longer than it need be."""
    header, end = {}, 0
    for name, (dtype, shape) in SIZES.items():
        start, end = end, end + BYTES[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    # Bytes of ordinary float32 values, so that no NaN hides a difference.
    payload = np.random.default_rng(3).standard_normal(end // 4 + 1).astype(np.float32).tobytes()[:end]
    path = tmp_path / f"pad{pad}.safetensors"
    path.write_bytes(pack(json.dumps(header).encode() + b" " * pad, payload))
    return path, read_header(path).entries, payload


@pytest.mark.parametrize("pad", range(8))
@pytest.mark.parametrize("aliased", [False, True])
def test_arrays_hold_the_files_bytes_at_any_offset(tmp_path: Path, pad: int, aliased: bool) -> None:
    path, entries, _ = shard(tmp_path, pad)
    data = path.read_bytes()
    mapping = Mapping(path, len(data), mx.array if aliased else None)
    for name, entry in entries.items():
        raw, array = mapping.raw(entry), mapping.array(entry)
        assert raw.tobytes() == data[entry.start : entry.end], name
        assert array.shape == tuple(SIZES[name][1])
        assert array.dtype == {"BF16": mx.bfloat16, "F32": mx.float32}.get(entry.dtype, mx.uint8)
        if array.size:
            assert np.array(array.view(mx.uint8)).tobytes() == data[entry.start : entry.end], name


@pytest.fixture(scope="module")
def three_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Three whole rows and part of one, no two places of which look alike."""
    data = np.random.default_rng(5).integers(0, 100, 3 * ROW + 777, np.uint8).tobytes()
    path = tmp_path_factory.mktemp("rows") / "shard"
    path.write_bytes(data)
    return path, data


def windows(dtype: str, count: int) -> list[Entry]:
    """A tensor at every place of a row, and at the borders of pages and rows; then of every length around those."""
    item, last = BYTES[dtype], 3 * ROW + 777
    nbytes = count * item
    starts = [*range(ROW), *(ROW * k + d for k in (1, 2, 3) for d in range(-nbytes - 5, 9)), last - nbytes]
    found = [Entry(dtype, (count,), at, at + nbytes) for at in starts if 0 <= at <= last - nbytes]
    for start in (0, 1, ROW - 1, ROW, ROW + 4):
        for end in (ROW, 2 * ROW, 3 * ROW):
            lengths = {(end - start) // item + n for n in (-1, 0, 1)}
            found += [Entry(dtype, (n,), start, start + n * item) for n in sorted(lengths) if n > 0]
    return found


@pytest.mark.parametrize(("dtype", "count"), [("I8", 5), ("F8_E8M0", 1), ("BF16", 3), ("F32", 3)])
def test_an_array_at_every_offset_of_a_row(three_rows: tuple[Path, bytes], dtype: str, count: int) -> None:
    """Aliased where its items fit the place and it ends in the whole rows, copied with a reason elsewhere; the bytes
    are the file's, and its view's. Addresses as seen in the file: the mapping begins on a page."""
    path, data = three_rows
    plain, mapping = Mapping(path, len(data)), Mapping(path, len(data), mx.array)
    found, expected, views = list[mx.array](), list[bytes](), list[bytes]()
    for entry in windows(dtype, count):
        right = data[entry.start : entry.end]
        alias = mapping._alias(entry, BYTES[dtype])
        assert (alias is not None) == (entry.start % BYTES[dtype] == 0 and entry.end <= 3 * ROW)
        assert (alias is not None) == (mapping.why_copied(entry) is None) and plain.why_copied(entry)
        found.append(plain.array(entry) if alias is None else alias)
        expected.append(right)
        views.append(mapping.raw(entry).tobytes())
    assert views == expected
    joined = mx.concatenate([a.view(mx.uint8).reshape(-1) for a in found])
    assert np.array(joined).tobytes() == b"".join(expected)


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_copy_is_made_of_memory_that_fits_its_items(
    three_rows: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """A processor that does not forgive unaligned reads meets none."""
    path, data = three_rows
    mapping, plain, seen = Mapping(path, len(data)), mx.array, list[int]()

    def array(memory: np.ndarray) -> mx.array:
        seen.append(memory.ctypes.data % BYTES[dtype])
        return plain(memory)

    monkeypatch.setattr("tensorfold.checkpoint.mapping.mx.array", array)
    for start in range(ROW - 9, ROW + 9):
        mapping.array(Entry(dtype, (2,), start, start + 2 * BYTES[dtype]))
    assert seen == [0] * 18


@pytest.mark.parametrize("dtype", BYTES)
def test_alignment_is_that_of_the_arrays_address(three_rows: tuple[Path, bytes], dtype: str) -> None:
    """An alias lies where the file has it, behind a page's beginning; a copy where 16 divides."""
    path, data = three_rows
    plain, mapping = Mapping(path, len(data)), Mapping(path, len(data), mx.array)
    address = mapping._bytes.ctypes.data
    assert address % 4096 == 0
    for entry in windows(dtype, 3):
        where = 0 if mapping.why_copied(entry) else address + entry.start
        assert mapping.alignment(entry) == max(n for n in (1, 2, 4, 8, 16) if where % n == 0), entry
        assert plain.alignment(entry) == 16
    for start, end in ((0, 0), (5, 5), (3 * ROW - 8, 3 * ROW + 4)):  # nothing is aliased there
        assert mapping.alignment(Entry("I8", (end - start,), start, end)) == 16


def test_rows_are_the_whole_file_but_for_its_partial_end(three_rows: tuple[Path, bytes]) -> None:
    path, data = three_rows
    mapping = Mapping(path, len(data), mx.array)
    for end in (0, 1, ROW, 3 * ROW - 1, 3 * ROW):
        rows = mapping.rows(end)
        assert rows is not None and rows.shape == (3, ROW) and np.array(rows).tobytes() == data[: 3 * ROW]
    assert mapping.rows(3 * ROW + 1) is None and mapping.rows(len(data)) is None
    assert Mapping(path, len(data)).rows(ROW) is None


def test_an_alias_is_taken_exactly_where_offset_and_place_allow(tmp_path: Path) -> None:
    path, entries, _ = shard(tmp_path, 0)
    wrapped: list[int] = []

    def wrap(rows: np.ndarray) -> mx.array:
        wrapped.append(len(rows))
        return mx.array(rows)

    mapping = Mapping(path, path.stat().st_size, wrap)
    whole = path.stat().st_size // ROW * ROW
    for entry in entries.values():
        item = 2 if entry.dtype == "BF16" else 4 if entry.dtype == "F32" else 1
        allowed = entry.start % item == 0 and entry.start < entry.end <= whole
        assert (mapping._alias(entry, item) is not None) == allowed
    assert wrapped == [whole // ROW]  # once, and without the tail
    assert entries["tail"].end > whole


def test_no_alias_without_metal() -> None:
    if mx.metal.is_available():
        assert metal_wrap() is not None
    else:
        assert metal_wrap() is None


@pytest.mark.skipif(not mx.metal.is_available(), reason="needs a Metal device")
def test_on_metal_no_byte_is_copied(small: Path) -> None:
    ck = Checkpoint.open(small)
    before = mx.get_active_memory()
    arrays = [ck.array(n) for n in ck.names]
    mx.eval(arrays)
    assert mx.get_active_memory() - before < 1.1 * sum(h.size for h in ck._headers)


def test_a_tensor_beyond_int32_is_refused_before_it_is_read(tmp_path: Path) -> None:
    rows, width = 2**24, 256
    header = {"table": {"dtype": "F8_E4M3", "shape": [rows, width], "data_offsets": [0, rows * width]}}
    path = tmp_path / "sparse.safetensors"
    path.write_bytes(pack(header, b""))
    size = path.stat().st_size + rows * width
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(size - width)
        file.write(bytes(range(256)))
    mapping, entry = Mapping(path, size), read_header(path).entries["table"]
    assert mapping.raw(entry)[-1].tolist() == list(range(256))
    with pytest.raises(ValueError, match=f"{rows * width} bytes"):
        mapping.array(entry)


def test_bfloat16_values_are_right(tmp_path: Path) -> None:
    values = [0.0, -1.5, 3.0e38, 2.0**-130]
    words = b"".join(struct.pack("<f", v)[2:] for v in values)
    path = tmp_path / "b.safetensors"
    path.write_bytes(pack({"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, words))
    array = Mapping(path, path.stat().st_size).array(read_header(path).entries["x"])
    bits = np.array(array.view(mx.uint16)).astype(np.uint32) << 16
    assert np.allclose(bits.view(np.float32), values, rtol=2**-7)
