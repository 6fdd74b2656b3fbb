"""synthetic.write makes checkpoints that open, repeat, and have the weights they claim."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shardkit import INDEX, SMALL

from tensorfold.checkpoint import Checkpoint, expected_tensors
from tensorfold.config import ConfigError, ModelConfig
from tensorfold.network.engram_hash import EngramHash
from tensorfold.testing import synthetic
from tensorfold.testing.random_weights import GAIN, to_bf16
from tensorfold.testing.synthetic_config import PRESETS, flat_config
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer

E4M3 = np.array(
    [
        (m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) * s
        for s in (1, -1)
        for e in range(16)
        for m in range(8)
    ]
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()
    }


def values(ck: Checkpoint, name: str, middle: int) -> np.ndarray:
    """A quantised weight in float64, as if every block had the middle scale."""
    raw = ck.raw(name)
    codes = E2M1[np.stack([raw & 15, raw >> 4], axis=-1)] if ".experts." in name else E4M3[raw]
    return codes.reshape(raw.shape[0], -1) * 2.0 ** (middle - 127)


def test_equal_seeds_write_equal_bytes_and_others_do_not(small: Path, tmp_path: Path) -> None:
    code = (
        "import sys, json; from tensorfold.testing import synthetic; "
        "synthetic.write(sys.argv[1], seed=1, **json.loads(sys.argv[2]))"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, tmp_path / "again", json.dumps(SMALL)], check=True, cwd=root)
    synthetic.write(tmp_path / "other", "tiny", seed=2, **SMALL)
    assert digests(tmp_path / "again") == digests(small)
    a, b = Checkpoint.open(small), Checkpoint.open(tmp_path / "other")
    assert a.identity != b.identity and not np.array_equal(a.raw("embed.weight"), b.raw("embed.weight"))


def test_files_are_the_published_ones(small: Path) -> None:
    found = set(digests(small))
    shards = {f"model-{i:05d}-of-00017.safetensors" for i in range(1, 18)}
    assert found == shards | {INDEX, "config.json", "inference/config.json", "tokenizer.json", "tokenizer_config.json"}
    index = json.loads((small / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(
        s.nbytes for s in expected_tensors(ModelConfig.from_folder(small)).values()
    ) + 4 * (10 * 4 + 3 * 3)
    hf = ModelConfig.from_hf(json.loads((small / "config.json").read_text()))
    assert hf == ModelConfig.from_flat(json.loads((small / "inference/config.json").read_text()))


@pytest.mark.parametrize("drafter", [True, False])
@pytest.mark.parametrize("engram", [True, False])
def test_parts_can_be_left_out(tmp_path: Path, engram: bool, drafter: bool) -> None:
    config = synthetic.write(tmp_path, "tiny", engram=engram, drafter=drafter, image_router=False, **SMALL)
    ck = Checkpoint.open(tmp_path)
    assert ck.config == config and ck.has_drafter == drafter
    assert any("engram" in n for n in ck.names) == engram and any(n.startswith("mtp.") for n in ck.names) == drafter


def test_the_engram_numbers_fit_tokenizer_and_hash_rule(small: Path) -> None:
    config = ModelConfig.from_folder(small)
    tokenizer = Tokenizer.from_folder(small, config)
    token_map = engram_token_map(tokenizer, config)
    EngramHash(config, token_map)
    assert len(np.unique(token_map)) == config.engram_compressed_vocab_size < config.vocab_size == len(tokenizer)
    text = "The caf\u00e9 was memory, \U0001f9d1 2026"
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Every kind of linear has another number of inputs."""
    folder = tmp_path_factory.mktemp("uneven")
    shapes = {
        "dim": 160,
        "moe_inter_dim": 640,
        "q_lora_rank": 96,
        "o_lora_rank": 256,
        "n_heads": 16,
        "engram_n_heads": 4,
    }
    synthetic.write(folder, "tiny", **{**SMALL, **shapes})
    return Checkpoint.open(folder)


@pytest.mark.parametrize(
    ("name", "gain", "inputs"),
    [
        ("layers.0.attn.wq_a", GAIN["wq_a"], 160),
        ("layers.0.attn.wq_b", GAIN["wq_b"], 96),
        ("layers.0.attn.wkv", GAIN["wkv"], 160),
        ("layers.0.attn.wo_a", GAIN["wo_a"], 256),
        ("layers.0.attn.wo_b", GAIN["wo_b"], 1024),
        ("layers.6.attn.indexer.wq_b", 1.0, 96),
        ("layers.5.ffn.shared_experts.w1", GAIN["w1"], 160),
        ("layers.5.ffn.shared_experts.w2", GAIN["w2"], 640),
        ("layers.3.ffn.experts.2.w1", GAIN["w1"], 160),
        ("layers.3.ffn.experts.2.w2", GAIN["w2"], 640),
        ("mtp.0.main_proj", 1.0, 480),
        ("layers.1.engram.wkv", 1.6 * GAIN["wkv"], 384),
        ("layers.1.engram.embed", 1.0, 1),
    ],
)
def test_quantised_weights_have_the_spread_they_claim(uneven: Checkpoint, name: str, gain: float, inputs: int) -> None:
    std = gain * inputs**-0.5
    steps = np.unique(uneven.raw(f"{name}.scale")).astype(int)
    assert len(steps) == 3  # neighbouring scales differ, by powers of two around the middle one
    v = values(uneven, f"{name}.weight", middle=int(steps[1]))
    assert np.isfinite(v).all() and abs(v.mean()) < 0.1 * std
    assert 0.94 * std < 1.25 * v.std() < 1.06 * std


def test_no_code_is_not_a_number(small: Path) -> None:
    ck = Checkpoint.open(small)
    for name, spec in expected_tensors(ck.config).items():
        raw = ck.raw(name)
        if spec.dtype == "F8_E4M3":
            assert not ((raw & 0x7F) == 0x7F).any()
        elif spec.dtype == "F8_E8M0":
            assert raw.min() > 90 and raw.max() < 160
        elif spec.dtype == "BF16":
            assert np.isfinite((raw.astype(np.uint32) << 16).view(np.float32)).all()
        elif spec.dtype == "F32":
            assert np.isfinite(raw).all()


def test_bf16_rounds_to_nearest_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], np.uint32)
    assert to_bf16(bits.view(np.float32)).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0xBF82]


def test_mid_is_a_mid_sized_model_without_engram() -> None:
    config = ModelConfig.from_flat(flat_config("mid", engram=True, drafter=True, overrides={}))
    assert (config.hidden_size, config.num_hidden_layers, config.engram_layer_ids) == (2048, 4, ())
    assert {r.ratio for r in config.roles} == {0, 1, 2}
    weights = sum(
        s.nbytes * (2 if s.dtype == "I8" else 1) / (2 if s.dtype == "BF16" else 1)
        for s in expected_tensors(config).values()
        if s.dtype in ("I8", "F8_E4M3", "BF16")
    )
    assert 250e6 < weights < 400e6


def test_heads_has_the_real_head_sizes() -> None:
    c = PRESETS["heads"]
    assert (c["head_dim"], c["rope_head_dim"], c["index_n_heads"], c["index_head_dim"], c["window_size"]) == (
        512,
        64,
        32,
        128,
        128,
    )


def test_a_config_may_be_given_as_keys(tmp_path: Path) -> None:
    config = synthetic.write(tmp_path, {"window_size": 8, **SMALL}, index_topk=4)
    assert (config.sliding_window, config.index_topk, config.hidden_size) == (8, 4, 128)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("nano",), "no preset 'nano'; presets: tiny, heads, mid"),
        (({"windw": 1},), "windw"),
        (({"engram_num_embeddings": [1, 1]},), "engram_num_embeddings"),
        (({"dim": 100},), "hidden_size"),
        (({"vocab_size": 100},), "vocab_size 100 is too small"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, args: tuple[object, ...], error: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=error):
        synthetic.write(tmp_path / "x", *args)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()
