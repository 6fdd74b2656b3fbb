"""What kernels read where it lies: a shard's rows with offsets in them, and the load widths that addresses allow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from shardkit import header_of, pack, replace, shard_of

from tensorfold.backend.kernels.weights import Gathered, load_dense, load_experts, load_fp8
from tensorfold.backend.pool import LEAVES
from tensorfold.checkpoint import Checkpoint, CheckpointError
from tensorfold.checkpoint.mapping import ROW
from tensorfold.checkpoint.reader import MAPPED

EXPERTS, COUNT = "layers.3.ffn.experts", 4
NAMES = [f"{EXPERTS}.{e}.{leaf}" for e in range(COUNT) for leaf in LEAVES]


@pytest.fixture
def opened(model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Checkpoint]:
    """The checkpoint with the payload of layer 3 moved by so many bytes, as a Metal device has it."""
    monkeypatch.setattr("tensorfold.checkpoint.reader.metal_wrap", lambda: mx.array)

    def at(pad: int) -> Checkpoint:
        path = shard_of(model, NAMES[0])
        header, payload = header_of(path)
        more = -len(pack(header, b"")) % 16 + pad  # so that the payload begins `pad` bytes behind a multiple of 16
        replace(path, pack(json.dumps(header).encode() + b" " * more, payload))
        assert (path.stat().st_size - len(payload)) % 16 == pad
        return Checkpoint.open(model)

    return at


@pytest.mark.parametrize("pad", range(16))
def test_a_mapped_shard_has_every_byte_where_it_says(opened: Callable[[int], Checkpoint], pad: int) -> None:
    with opened(pad) as ck:
        for names in (NAMES, NAMES[::-1], NAMES[7:8]):
            mapped = ck.mapped(names)
            assert mapped is not None and mapped[0].dtype == mx.uint8 and mapped[0].shape[1] == ROW
            flat = np.array(mapped[0]).reshape(-1)
            assert len(mapped[1]) == len(names)
            for name, place in zip(names, mapped[1]):
                assert flat[place : place + ck.nbytes(name)].tobytes() == ck.view(name).tobytes(), name
            assert [ck.taken().get(name) for name in names] == [MAPPED] * len(names)


def gathered(weight: Gathered, ck: Checkpoint) -> None:
    """Every tensor's bytes, followed from the offsets."""
    flat, origin = np.array(weight.shard).reshape(-1), int(np.array(weight.origin)[0])
    places = np.concatenate([np.array(weight.up), np.array(weight.down)], 1).reshape(-1)
    for name, place in zip(NAMES, places.tolist(), strict=True):
        bits = ck.view(name).tobytes()
        assert flat[origin + place : origin + place + len(bits)].tobytes() == bits, name
    allowed = [w for w in (16, 8, 4) if not (places.reshape(-1, 2)[:, 0] % w).any()]
    assert weight.width == allowed[0]
    assert weight.sizes == (ck.view(NAMES[0]).shape[0], ck.view(NAMES[4]).shape[0])


@pytest.mark.parametrize("pad", range(16))
def test_experts_and_matrices_get_the_width_of_their_addresses(opened: Callable[[int], Checkpoint], pad: int) -> None:
    with opened(pad) as ck:
        starts = [ck._entries[name][1].start for name in NAMES if name.endswith("weight")]
        fits = [width for width in (16, 8, 4) if all(start % width == 0 for start in starts)]
        assert bool(fits) == (pad % 4 == 0)
        if fits:
            weight = load_experts(ck, EXPERTS, COUNT)
            gathered(weight, ck)
            assert weight.width == fits[0]
        else:
            with pytest.raises(ValueError, match="addresses that 4 does not divide"):
                load_experts(ck, EXPERTS, COUNT)

        def width(name: str) -> int:
            """By where the array lies in the file, or in memory of its own."""
            start = ck._entries[name][1].start
            return max(n for n in (1, 2, 4, 8, 16) if ck.why_copied(name) or start % n == 0)

        pairs = [["layers.3.attn.wq_a", "layers.3.attn.wkv"], ["layers.3.attn.wkv", "layers.3.attn.wq_a"]]
        for names in [*pairs, *([n] for n in pairs[0])]:
            matrices = load_fp8(ck, names)
            assert matrices.width == min(width(f"{n}.weight") for n in names)
            for n, (codes, scales) in zip(names, matrices.parts, strict=True):
                for array, leaf in ((codes, "weight"), (scales, "scale")):
                    assert np.array(array).tobytes() == ck.view(f"{n}.{leaf}").tobytes()
        assert load_dense(ck, "layers.3.ffn.gate.weight").width == width("layers.3.ffn.gate.weight")
        assert all(ck.alignment(name) == width(name) for name in ck.names)


def test_two_matrices_get_the_smaller_width(opened: Callable[[int], Checkpoint]) -> None:
    """Whichever of them lies worse: one of this shard, one of a shard that was not moved."""
    with opened(4) as ck:
        widths = {n: ck.alignment(f"layers.{n}.attn.wq_a.weight") for n in (2, 3)}
        assert widths[3] < widths[2]
        for order in ((2, 3), (3, 2)):
            assert load_fp8(ck, [f"layers.{n}.attn.wq_a" for n in order]).width == widths[3]


def test_what_cannot_be_mapped_is_copied_and_the_same(opened: Callable[[int], Checkpoint]) -> None:
    """Several shards, the partial end of a file, no device that takes mapped files."""
    with opened(0) as ck:
        assert ck.mapped([NAMES[0], "layers.2.ffn.experts.0.w1.weight"]) is None
        last = max((name for name in ck.names if ck._entries[name][0] == ck._entries[NAMES[0]][0]),
                   key=lambda name: ck._entries[name][1].end)  # fmt: skip
        assert ck.why_copied(last) and ck.mapped([NAMES[0], last]) is None and ck.mapped([last, NAMES[0]]) is None
        assert ck.taken() == {}
        for mapping in ck._maps.values():
            mapping._wrap = None
        assert ck.mapped(NAMES) is None
        weight = load_experts(ck, EXPERTS, COUNT)
        gathered(weight, ck)
        assert weight.width == 16


@pytest.mark.parametrize("call", ["array", "mapped", "view"])
def test_what_lies_in_a_changed_file_is_not_handed_out(
    opened: Callable[[int], Checkpoint], model: Path, call: str
) -> None:
    with opened(0) as ck:
        ck.mapped(NAMES[:1])
        path = shard_of(model, NAMES[0])
        os.utime(path, ns=(1, 1))
        assert ck.why_copied(NAMES[0]) is None
        with pytest.raises(CheckpointError, match=f"{path.name}: changed since"):
            getattr(ck, call)(NAMES[:1] if call == "mapped" else NAMES[0])
