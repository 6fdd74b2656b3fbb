"""Checkpoint.open loads a sound folder whole and refuses every other one before a weight is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from shardkit import INDEX, Tensors, edit_index, header_of, pack, replace, rewrite, shard_of

from tensorfold.checkpoint import Checkpoint, CheckpointError, expected_tensors, mapping
from tensorfold.checkpoint.reader import Mapping
from tensorfold.config import ConfigError

WQ = "layers.0.attn.wq_a.weight"
EXPERT = "layers.3.ffn.experts.1.w2.weight"


@pytest.fixture(autouse=True)
def no_weight_is_read_by_a_failing_open(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files mapped so far: a refusal must come before the first."""
    mapped: list[Path] = []
    plain = Mapping.__init__

    def spy(self: Mapping, path: Path, *args: object) -> None:
        mapped.append(path)
        plain(self, path, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(mapping.Mapping, "__init__", spy)
    return mapped


@pytest.fixture
def refused(no_weight_is_read_by_a_failing_open: list[Path]) -> Callable[..., str]:
    def check(folder: Path, *parts: str, drafter: bool = True) -> str:
        with pytest.raises(CheckpointError) as caught:
            Checkpoint.open(folder, drafter=drafter)
        text = str(caught.value)
        for part in (folder.name, *parts):
            assert part in text, f"{part!r} is not named in: {text}"
        assert no_weight_is_read_by_a_failing_open == []
        return text

    return check


def test_every_expected_tensor_is_there_with_its_bytes(small: Path) -> None:
    with Checkpoint.open(small) as ck:
        specs = expected_tensors(ck.config)
        assert list(ck.names) == list(specs) and len(ck) == len(specs) and ck.has_drafter
        kinds = {
            "F8_E4M3": (np.uint8, mx.uint8),
            "F8_E8M0": (np.uint8, mx.uint8),
            "I8": (np.uint8, mx.uint8),
            "BF16": (np.uint16, mx.bfloat16),
            "F32": (np.float32, mx.float32),
        }
        for name, spec in specs.items():
            raw, array = ck.raw(name), ck.array(name)
            assert (raw.dtype, array.dtype) == kinds[spec.dtype] and raw.shape == array.shape == spec.shape
            assert ck.nbytes(name) == raw.nbytes == array.nbytes
            header, payload = header_of(shard_of(small, name))
            start, end = header[name]["data_offsets"]
            assert raw.tobytes() == payload[start:end]
            assert np.array_equal(np.array(array.view(mx.uint8)).reshape(-1), np.frombuffer(raw.tobytes(), np.uint8))


def test_a_view_is_read_only_and_never_a_copy(small: Path) -> None:
    ck = Checkpoint.open(small)
    view = ck.view("embed.weight")
    assert not view.flags.writeable and not view.flags.owndata
    assert np.shares_memory(view, ck.view("embed.weight"))
    assert np.array_equal(view, ck.raw("embed.weight"))


def test_image_tensors_are_not_among_the_names(small: Path) -> None:
    ck = Checkpoint.open(small)
    assert "layers.0.ffn.gate.bias_vl" not in ck and "layers.0.ffn.gate.bias" in ck
    with pytest.raises(KeyError, match="bias_vl"):
        ck.raw("layers.0.ffn.gate.bias_vl")


def test_a_closed_checkpoint_says_so_and_leaves_views_alive(small: Path) -> None:
    with Checkpoint.open(small) as ck:
        view, before = ck.view(WQ), ck.raw(WQ).tobytes()
    for call in (ck.raw, ck.view, ck.array, ck.table):
        with pytest.raises(ValueError, match="closed"):
            call(WQ)
    assert view.tobytes() == before


def test_single_file_and_index_free_folders_hold_the_same(small: Path, single: Path, model: Path) -> None:
    (model / INDEX).unlink()
    a, b, c = Checkpoint.open(small), Checkpoint.open(single), Checkpoint.open(model)
    assert set(a.names) == set(b.names) == set(c.names)
    assert all(
        np.array_equal(a.raw(n), b.raw(n), equal_nan=False) and np.array_equal(a.raw(n), c.raw(n)) for n in a.names
    )


def test_other_files_beside_an_index_are_none_of_its_business(model: Path) -> None:
    (model / "golden.safetensors").write_bytes(b"notes")
    (model / "model-00001-of-00002.safetensors").write_bytes(b"another")
    Checkpoint.open(model)


# Files and index


def test_a_path_that_is_no_checkpoint_folder(tmp_path: Path, model: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        Checkpoint.open(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match="found a file"):
        Checkpoint.open(model / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"neither config\.json"):
        Checkpoint.open(tmp_path / "empty")


def test_a_config_fault_comes_first(model: Path) -> None:
    replace(model / "config.json", b'{"model_type": "deepseek_v4"}')
    with pytest.raises(ConfigError, match=r"config\.json: model_type = 'deepseek_v4' .*supported: deepseek_v41"):
        Checkpoint.open(model)


@pytest.mark.parametrize("indexed", [True, False])
def test_an_absent_shard_is_named_before_any_is_read(model: Path, refused: Callable[..., str], indexed: bool) -> None:
    gone = shard_of(model, EXPERT)
    gone.unlink()
    replace(shard_of(model, WQ), b"junk")  # would be noticed if it were read first
    if not indexed:
        (model / INDEX).unlink()
    refused(model, gone.name, "absent", "incomplete download?")


def test_many_absent_shards_are_counted(model: Path, refused: Callable[..., str]) -> None:
    for path in model.glob("model-0000[2-9]*.safetensors"):
        path.unlink()
    refused(model, "8 of 17 shards", "model-00002-of-00017.safetensors", "model-00009-of-00017.safetensors")


def test_a_folder_without_any_shard(model: Path, refused: Callable[..., str]) -> None:
    for path in model.glob("*.safetensors*"):
        path.unlink()
    refused(model, "no model.safetensors.index.json, no model.safetensors")


def test_two_kinds_of_shards_without_an_index_are_ambiguous(
    model: Path, single: Path, refused: Callable[..., str]
) -> None:
    (model / INDEX).unlink()
    shutil.copy(single / "model.safetensors", model)
    refused(model, "both model.safetensors and model-00001-of-00017.safetensors")
    (model / "model.safetensors").unlink()
    shutil.copy(model / "model-00001-of-00017.safetensors", model / "model-00001-of-00018.safetensors")
    refused(model, "shards of several checkpoints")
    (model / "model-00001-of-00018.safetensors").rename(model / "model-00018-of-00017.safetensors")
    refused(model, "model-00018-of-00017.safetensors", "outside 1..00017")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"{", "not a valid index"),
        (b"[]", "weight_map"),
        (b"{}", "weight_map"),
        (b'{"weight_map": []}', "weight_map"),
        (b'{"weight_map": {}}', "weight_map"),
        (b'{"weight_map": {"a": 1}}', "'a' has file 1"),
        (b'{"weight_map": {"a": "../x.safetensors"}}', "../x.safetensors"),
        (b'{"weight_map": {"a": "/etc/passwd"}}', "/etc/passwd"),
        (b'{"weight_map": {"a": "*.safetensors"}}', "expected a"),
        (b'{"weight_map": {"a": "x.bin"}}', "x.bin"),
        (b'{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}', "twice"),
        (b"\xff", "not a valid index"),
        (b"[" * 100_000, "not a valid index"),
    ],
)
def test_a_faulty_index_is_refused(model: Path, refused: Callable[..., str], index: bytes, message: str) -> None:
    replace(model / INDEX, index)
    refused(model, INDEX, message)


def test_index_and_shards_must_tell_the_same(model: Path, refused: Callable[..., str]) -> None:
    other = shard_of(model, EXPERT).name
    edit_index(model, lambda m: m.update({WQ: other}))
    refused(model, f"'{WQ}' lies in {shard_of(model, 'layers.0.attn.attn_sink').name}, the index says {other}")
    edit_index(model, lambda m: m.pop(WQ))
    refused(model, f"'{WQ}' lies in", "the index says nothing")


def test_an_index_that_names_a_tensor_no_shard_has(model: Path, refused: Callable[..., str]) -> None:
    rewrite(shard_of(model, WQ), lambda t: t.pop(WQ))
    refused(model, f"'{WQ}' is not in {shard_of(model, WQ).name}, where the index puts it")


# Shards


def drop_bytes(path: Path, count: int) -> tuple[int, int]:
    data = path.read_bytes()
    replace(path, data[:-count])
    return len(data), len(data) - count


def test_a_shard_one_byte_short(model: Path, refused: Callable[..., str]) -> None:
    path = shard_of(model, EXPERT)
    before, after = drop_bytes(path, 1)
    refused(model, path.name, f"expected {before} bytes", f"has {after}", "incomplete download?")


def test_a_shard_one_tensor_short(model: Path, refused: Callable[..., str]) -> None:
    path = shard_of(model, EXPERT)
    header, _ = header_of(path)
    start, end = list(header.values())[-1]["data_offsets"]
    before, after = drop_bytes(path, end - start)
    refused(model, path.name, f"expected {before} bytes", f"has {after}")


def test_a_shard_that_ends_in_its_header(model: Path, refused: Callable[..., str]) -> None:
    path = shard_of(model, EXPERT)
    replace(path, path.read_bytes()[:1000])
    refused(model, path.name, "the header needs", "the file has 1000")


@pytest.mark.parametrize("data", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 64])
def test_a_shard_that_is_no_safetensors(model: Path, refused: Callable[..., str], data: bytes) -> None:
    replace(shard_of(model, EXPERT), data)
    refused(model, shard_of(model, EXPERT).name)


def test_a_header_with_a_key_twice(model: Path, refused: Callable[..., str]) -> None:
    path = shard_of(model, WQ)
    header, payload = header_of(path)
    raw = json.dumps(header)
    replace(path, pack((raw[:-1] + f', "{WQ}": {json.dumps(header[WQ])}}}').encode(), payload))
    refused(model, path.name, WQ, "given twice")


def test_a_tensor_in_two_shards(model: Path, refused: Callable[..., str]) -> None:
    (model / INDEX).unlink()
    source, target = model / "model-00002-of-00017.safetensors", model / "model-00003-of-00017.safetensors"
    header, payload = header_of(source)
    start, end = header[WQ]["data_offsets"]
    rewrite(target, lambda t: t.update({WQ: ("F8_E4M3", header[WQ]["shape"], payload[start:end])}))
    refused(model, target.name, WQ, source.name)


# Tensors against the config


def faulty(folder: Path, name: str, edit: Callable[[Tensors], object]) -> None:
    """A fault inside one shard that the index agrees with."""
    path = shard_of(folder, name)
    rewrite(path, edit)
    names = set(header_of(path)[0])
    edit_index(
        folder, lambda m: ([m.pop(n) for n in list(m) if m[n] == path.name], m.update(dict.fromkeys(names, path.name)))
    )


def test_missing_and_stray_tensors_are_listed_together(model: Path, refused: Callable[..., str]) -> None:
    def edit(tensors: Tensors) -> None:
        tensors.pop("layers.3.attn.kv_norm.weight")
        tensors["layers.3.attn.q_head_norm.weight"] = ("BF16", [1], b"\0\0")

    faulty(model, EXPERT, edit)
    refused(
        model,
        "1 tensors missing: layers.3.attn.kv_norm.weight",
        "incomplete download?",
        "1 unknown tensors: 'layers.3.attn.q_head_norm.weight' (model-00005-of-00017.safetensors)",
    )


def test_a_long_list_is_cut(model: Path, refused: Callable[..., str]) -> None:
    faulty(model, EXPERT, lambda t: [t.pop(n) for n in list(t) if ".experts." in n])
    assert len(refused(model, "24 tensors missing", "and 16 more")) < 2000


@pytest.mark.parametrize("name", [WQ, EXPERT, "layers.1.engram.embed.weight"])
def test_a_weight_without_its_scale(model: Path, refused: Callable[..., str], name: str) -> None:
    scale = name.replace(".weight", ".scale")
    faulty(model, name, lambda t: t.pop(scale))
    refused(model, f"{scale} (without it {name} ", "means nothing")


@pytest.mark.parametrize("shape", [[1, 3], [3, 1], [12], [96, 4], [3, 4, 1]])
def test_a_scale_of_the_wrong_shape(model: Path, refused: Callable[..., str], shape: list[int]) -> None:
    scale = WQ.replace(".weight", ".scale")
    count = int(np.prod(shape))
    faulty(model, WQ, lambda t: t.update({scale: ("F8_E8M0", shape, b"\x7f" * count)}))
    refused(model, f"{scale} in {shard_of(model, WQ).name}: expected scale of shape [3, 4], found {shape}")


def test_a_weight_of_the_wrong_shape(model: Path, refused: Callable[..., str]) -> None:
    faulty(model, WQ, lambda t: t.update({WQ: ("F8_E4M3", [128, 96], t[WQ][2])}))
    refused(model, f"{WQ} in {shard_of(model, WQ).name}: expected shape [96, 128], found [128, 96]")


@pytest.mark.parametrize(
    ("name", "dtype", "why"),
    [
        (WQ, "I8", "quant_method is fp8"),
        (EXPERT, "F8_E4M3", "expert_dtype is fp4"),
        (EXPERT, "U8", "expert_dtype is fp4"),
        (WQ.replace("weight", "scale"), "U8", "scale_fmt is ue8m0"),
        ("layers.0.attn.q_norm.weight", "F16", "expected dtype BF16"),
        (WQ, "F8_E5M2", "expected dtype F8_E4M3"),
    ],
)
def test_another_dtype_than_the_config_asks_for(
    model: Path, refused: Callable[..., str], name: str, dtype: str, why: str
) -> None:
    faulty(model, name, lambda t: t.update({name: (dtype, *t[name][1:])}))
    refused(model, name, why, f"found {dtype}", shard_of(model, name).name)


def test_a_config_of_another_size_lists_what_differs(model: Path, refused: Callable[..., str]) -> None:
    for name, key in (("config.json", "n_routed_experts"), ("inference/config.json", "n_routed_experts")):
        text = (model / name).read_text().replace(f'"{key}": 4', f'"{key}": 5')
        replace(model / name, text.encode())
    refused(model, "60 tensors missing", "layers.0.ffn.experts.4.w1.weight", "20 tensors differ from the config")


# Image side and drafter


def test_image_shards_are_skipped_and_may_be_absent(model: Path) -> None:
    image = model / "vision.safetensors"
    names = ["vision.patch.weight", "aligner.w.weight"]
    entries = {n: {"dtype": "BF16", "shape": [2], "data_offsets": [4 * i, 4 * i + 4]} for i, n in enumerate(names)}
    image.write_bytes(pack(entries, b"\0" * 8))
    edit_index(model, lambda m: m.update(dict.fromkeys(names, image.name)))
    faulty(model, "embed.weight", lambda t: t.update(image_start=("BF16", [128], bytes(256))))
    with_image = Checkpoint.open(model)
    assert not any(n in with_image for n in (*names, "image_start"))
    image.unlink()
    assert Checkpoint.open(model).identity == with_image.identity


def test_a_present_image_shard_is_checked_as_well(model: Path, refused: Callable[..., str]) -> None:
    (model / "vision.safetensors").write_bytes(b"short")
    edit_index(model, lambda m: m.update({"vision.patch.weight": "vision.safetensors"}))
    refused(model, "vision.safetensors", "too short")


def test_the_image_router_may_be_missing(model: Path) -> None:
    faulty(model, EXPERT, lambda t: t.pop("layers.3.ffn.gate.bias_vl"))
    Checkpoint.open(model)


def test_a_missing_drafter_is_an_error_unless_unwanted(model: Path, refused: Callable[..., str]) -> None:
    for stage in range(3):
        (model / f"model-000{13 + stage}-of-00017.safetensors").unlink()
    refused(model, "3 of 17 shards", "(holds mtp.0.")
    ck = Checkpoint.open(model, drafter=False)
    assert not ck.has_drafter and not any(n.startswith("mtp.") for n in ck.names)


def test_a_misshaped_drafter_is_an_error_unless_unwanted(model: Path, refused: Callable[..., str]) -> None:
    name = "mtp.2.markov_head.head.weight"
    faulty(model, name, lambda t: t.update({name: ("BF16", [32, 320], t[name][2])}))
    refused(model, f"{name} in model-00015-of-00017.safetensors: expected shape [320, 32], found [32, 320]")
    assert not Checkpoint.open(model, drafter=False).has_drafter


def test_a_drafter_short_of_one_tensor_is_named_with_the_way_out(model: Path, refused: Callable[..., str]) -> None:
    faulty(model, "mtp.0.main_norm.weight", lambda t: t.pop("mtp.0.main_norm.weight"))
    refused(model, "1 tensors missing: mtp.0.main_norm.weight", "drafter=False")
    assert "mtp.0.main_norm.weight" not in Checkpoint.open(model, drafter=False)


def test_a_file_that_changes_while_it_is_opened_is_noticed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Mapping.__init__
    monkeypatch.setattr(Mapping, "__init__", lambda self, path, size, wrap: plain(self, path, size + 1, wrap))
    with pytest.raises(CheckpointError, match="bytes when its header was read"):
        Checkpoint.open(model)


def test_the_trained_example_opens_whole() -> None:
    with Checkpoint.open(Path(__file__).parents[2] / "examples/tiny-v41") as ck:
        assert len(ck) == len(expected_tensors(ck.config)) == 1529 and ck.has_drafter
