"""read_header takes a well-formed shard and refuses anything else with one CheckpointError."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from shardkit import header_of, pack

from tensorfold.checkpoint.errors import CheckpointError
from tensorfold.checkpoint.headers import Entry, read_header

GOOD: dict[str, Any] = {
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [12, 16]},
}


def shard(tmp_path: Path, header: Any, payload: bytes = b"\0" * 16) -> Path:
    path = tmp_path / "x.safetensors"
    path.write_bytes(pack(header, payload))
    return path


def with_b(**changes: Any) -> dict[str, Any]:
    return {"a": GOOD["a"], "b": {**GOOD["b"], **changes}}


def test_a_good_header_is_read(tmp_path: Path) -> None:
    header = read_header(shard(tmp_path, {"__metadata__": {"format": "pt"}, **GOOD}))
    start = header.data_start
    assert header.entries == {
        "a": Entry("BF16", (2, 3), start, start + 12),
        "b": Entry("F8_E4M3", (4,), start + 12, start + 16),
    }
    assert header.size == start + 16 and len(header.digest) == 32


def test_a_file_of_the_safetensors_library_is_read(tmp_path: Path) -> None:
    arrays = {
        "one": np.arange(6, dtype=np.float32).reshape(2, 3),
        "none": np.zeros((0, 4), np.uint8),
        "dot": np.float32(7),
    }
    save_file({k: np.asarray(v) for k, v in arrays.items()}, tmp_path / "lib.safetensors")
    entries = read_header(tmp_path / "lib.safetensors").entries
    assert {name: entry.shape for name, entry in entries.items()} == {"one": (2, 3), "none": (0, 4), "dot": ()}


FAULTS: list[tuple[str, Any, str]] = [
    ("unknown dtype", with_b(dtype="F9"), "tensor 'b' has the unknown dtype 'F9'"),
    ("dtype no string", with_b(dtype=8), "tensor 'b' has the unknown dtype 8"),
    ("dtype list", with_b(dtype=[]), "unknown dtype"),
    ("negative size", with_b(shape=[-4]), r"tensor 'b' has shape \[-4\]"),
    ("two negative sizes", with_b(shape=[-2, -2]), "has shape"),
    ("bool size", with_b(shape=[4, True]), "has shape"),
    ("float size", with_b(shape=[4.0]), "has shape"),
    ("shape null", with_b(shape=None), "has shape None"),
    ("shape object", with_b(shape={"0": 4}), "has shape"),
    ("overflowing shape", with_b(shape=[2**62, 4, 2**62]), "needs .* bytes"),
    ("wrapping shape", with_b(shape=[2**32, 2**32, 0, 4]), "needs 0 bytes"),
    ("huge int", with_b(shape=[10**60]), "has shape"),
    ("many dims", with_b(shape=[1] * 40 + [4]), "has shape"),
    ("negative offset", with_b(data_offsets=[-4, 0]), "has data_offsets"),
    ("backward offsets", with_b(data_offsets=[16, 12]), "has data_offsets"),
    ("three offsets", with_b(data_offsets=[12, 16, 16]), "has data_offsets"),
    ("bool offset", with_b(data_offsets=[12, True]), "has data_offsets"),
    ("string offset", with_b(data_offsets=["12", "16"]), "has data_offsets"),
    (
        "size against shape",
        with_b(shape=[5]),
        r"tensor 'b' F8_E4M3 \[5\] needs 5 bytes, its data_offsets \[12, 16\] hold 4",
    ),
    ("gap", with_b(data_offsets=[13, 17]), "'b' leaves bytes that belong to no tensor"),
    ("overlap", with_b(data_offsets=[10, 14]), "'b' overlaps the tensor before it .'a'.: starts at byte"),
    ("same bytes twice", {**GOOD, "c": GOOD["b"]}, "overlaps"),
    ("first byte unused", {"b": GOOD["b"]}, "leaves bytes"),
    ("field missing", {"a": {"dtype": "BF16", "shape": [8]}}, "expected dtype, shape and data_offsets"),
    ("field unknown", with_b(strides=[1]), "expected dtype, shape and data_offsets"),
    ("entry a list", {"a": [1, 2, 3]}, "expected dtype, shape and data_offsets"),
    ("entry a number", {"a": 5}, "expected dtype, shape and data_offsets"),
    ("entry empty", {"a": {}}, "expected dtype, shape and data_offsets"),
    ("metadata no strings", {"__metadata__": {"n": 1}, **GOOD}, "__metadata__"),
    ("metadata a list", {"__metadata__": [], **GOOD}, "__metadata__"),
    ("no tensors", {}, "bytes after the last tensor"),
    ("array", [GOOD], "not a JSON object"),
    ("string", "x", "not a JSON object"),
    ("no JSON", b"\x80\x81", "not JSON"),
    ("cut JSON", json.dumps(GOOD).encode()[:-5], "not JSON"),
    ("pickle", b"\x80\x04\x95.", "not JSON"),
    ("empty", b"", "not JSON"),
    ("leading space", b" " + json.dumps(GOOD).encode(), "not a JSON object"),
    ("nan", b'{"a": NaN}', "not JSON"),
    ("deep", b'{"a":' + b"[" * 200_000, "not JSON"),
    ("digits", b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
    ("duplicate tensor", json.dumps(GOOD).encode()[:-1] + b', "a": {}}', "'a' is given twice"),
    ("duplicate metadata", b'{"__metadata__": {}, "__metadata__": {}}', "given twice"),
    (
        "duplicate field",
        b'{"a": {"dtype": "BF16", "dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}',
        "expected dtype",
    ),
]


@pytest.mark.parametrize(("header", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_faulty_header_is_refused(tmp_path: Path, header: Any, message: str) -> None:
    path = shard(tmp_path, header)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 1000


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**8 + 1])
def test_a_huge_header_length_is_refused_unread(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match=f"header of {length} bytes"):
        read_header(path)


@pytest.mark.parametrize("keep", [0, 7, 8, 20])
def test_a_file_that_ends_in_its_header_is_refused(tmp_path: Path, keep: int) -> None:
    path = shard(tmp_path, GOOD)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="incomplete download"):
        read_header(path)


@pytest.mark.parametrize(
    ("payload", "message"), [(15, "incomplete download"), (0, "incomplete"), (17, "bytes after the last")]
)
def test_file_length_must_be_what_the_header_says(tmp_path: Path, payload: int, message: str) -> None:
    path = shard(tmp_path, GOOD, b"\0" * payload)
    size = path.stat().st_size
    with pytest.raises(
        CheckpointError, match=rf"expected {size - payload + 16} bytes by its header, the file has {size}; {message}"
    ):
        read_header(path)


def test_a_folder_or_pipe_is_no_shard(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_header(tmp_path / "x.safetensors")


def test_random_damage_never_escapes_as_another_error(tmp_path: Path, small: Path) -> None:
    source = small / "model-00001-of-00017.safetensors"
    header, payload = header_of(source)
    good = pack(header, payload[:64])
    rng = random.Random(7)
    path = tmp_path / "x.safetensors"
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(len(data), 200))] = rng.choice(b'0129-.eE[]{}",:tfn\\ \x00\xff')
        path.write_bytes(bytes(data))
        with pytest.raises(CheckpointError):
            read_header(path)
