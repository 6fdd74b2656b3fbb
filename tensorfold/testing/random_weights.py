"""Random weights with the statistics of a trained checkpoint, drawn as codes; knows names and dtypes, no files.

FP8 and FP4 codes come from tables of normal quantiles, so nothing is quantised element by element. Scales of
neighbouring blocks differ, so that a wrongly indexed scale shows.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tensorfold.checkpoint.inventory import TensorSpec
from tensorfold.config import ModelConfig

# Means of norm weights, and standard deviations over fan_in^-0.5: about those of the released checkpoint.
NORM = {"attn_norm": 0.3, "ffn_norm": 0.4, "q_norm": 1.0, "kv_norm": 0.6, "norm": 0.8, "k_norm": 0.6, "main_norm": 1.0}
GAIN = {
    "wq_a": 1.6, "wq_b": 1.0, "wkv": 1.8, "wo_a": 1.4, "wo_b": 1.2, "w1": 1.5, "w3": 1.5, "w2": 1.2, "gate": 2.5,
    "weights_proj": 1.5, "wgate": 2.0, "wk": 1.2,
}  # fmt: skip
# How strongly a token's head row points at the embedding of the token that it follows.
FOLLOW, FOLLOW_MARKOV = 3.0, 4.0
SCALE_STEPS = np.array([-1, 0, 0, 1], np.int16)
SCALE_SPREAD = 1.25  # root mean square of 2 ** SCALE_STEPS
FP8_SIGMA, FP4_SIGMA = 70.0, 1.2  # a code's standard deviation lies between this and twice this


class RandomWeights:
    """draw(name, spec) gives one tensor's bytes as numpy; the same for the same seed, whatever the order of calls."""

    def __init__(self, config: ModelConfig, seed: int, gain: float = 1.0) -> None:
        self._config = config
        self._seed = seed
        self._gains = {**GAIN, "wo_b": GAIN["wo_b"] * gain, "w2": GAIN["w2"] * gain}
        # Token v tends to come after token before[v]; the drafter's noise token predicts nothing.
        self._before = np.random.default_rng(seed).permutation(config.vocab_size)

    def draw(self, name: str, spec: TensorSpec) -> np.ndarray:
        """The tensor in C order: uint8 codes and scales, uint16 for BF16, float32."""
        rng = np.random.Generator(np.random.SFC64([self._seed, zlib.crc32(name.encode())]))
        owner, _, leaf = name.rpartition(".")
        base = owner.rpartition(".")[2]
        if spec.dtype == "F8_E8M0":
            return self._scale(rng, name, base, spec)
        if spec.dtype == "F8_E4M3":
            table = _fp8_table(_split(self._std(name, base, spec.shape[1]), FP8_SIGMA)[0])
            return _pick(rng, table, spec.shape)
        if spec.dtype == "I8":
            table = _fp4_table(_split(self._std(name, base, 2 * spec.shape[1]), FP4_SIGMA)[0])
            return _pick(rng, table, spec.shape)
        if spec.dtype == "F32":
            return self._float32(rng, name, spec.shape)
        return to_bf16(self._bfloat16(rng, name, base, leaf, spec.shape))

    def _std(self, name: str, base: str, fan_in: int) -> float:
        if ".engram.embed." in name:
            return 1.0
        return fan_in**-0.5 * self._gains.get(base, 1.0) * (1.6 if ".engram." in name else 1.0)

    def _scale(self, rng: np.random.Generator, name: str, base: str, spec: TensorSpec) -> np.ndarray:
        experts = ".ffn.experts." in name
        fan_in = self._fan_in(name, base) if not experts else 32 * spec.shape[1]
        exponent = _split(self._std(name, base, fan_in), FP4_SIGMA if experts else FP8_SIGMA)[1]
        steps = SCALE_STEPS[rng.integers(0, len(SCALE_STEPS), spec.shape, np.uint8)]
        return (127 + exponent + steps).astype(np.uint8)

    def _fan_in(self, name: str, base: str) -> int:
        """Inputs of an FP8 linear, exact where the scale's shape rounds up to whole blocks."""
        c = self._config
        if ".engram." in name:
            return (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim
        return {
            "wq_b": c.q_lora_rank,
            "wo_a": c.num_attention_heads * c.head_dim // c.o_groups,
            "wo_b": c.o_groups * c.o_lora_rank,
            "w2": c.moe_intermediate_size,
            "main_proj": c.hidden_size * max(1, len(c.dspark_target_layer_ids)),
        }.get(base, c.hidden_size)

    def _float32(self, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
        t = rng.standard_normal(shape, np.float32)
        if name.endswith((".bias", ".bias_vl")):
            t *= np.float32(0.3)
        elif name.endswith("_fn"):
            t *= np.float32(shape[1] ** -0.5)
        elif name.endswith("_scale"):
            t = 0.5 + rng.random(shape, np.float32)
        elif name.endswith("_base"):
            streams = self._config.hc_mult
            t *= np.float32(0.5)
            t[2 * streams :] += 2 * np.eye(streams, dtype=np.float32).reshape(-1)
        return t

    def _bfloat16(
        self, rng: np.random.Generator, name: str, base: str, leaf: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        t = rng.standard_normal(shape, np.float32)
        if name == "embed.weight" or name.endswith("markov_head.embed.weight"):
            return t
        if name == "head.weight":
            t *= np.float32(3.0 * shape[1] ** -0.5)
            embed = self._unit_rows("embed.weight", shape)[self._before]
            embed[self._before == self._config.dspark_noise_token_id] = 0
            return t + embed * np.float32(FOLLOW * shape[1] ** -0.5)
        if name.endswith("markov_head.head.weight"):
            embed = self._unit_rows(name.replace(".head.weight", ".embed.weight"), shape)[self._before]
            return (embed * np.float32(FOLLOW_MARKOV) + t * np.float32(0.5)) * np.float32(shape[1] ** -0.5)
        if leaf in ("q_weight", "k_weight"):
            return 1 + np.float32(0.3) * t
        if leaf == "weight" and base in NORM:
            return np.float32(NORM[base]) * (1 + np.float32(0.1) * t)
        return t * np.float32(shape[-1] ** -0.5 * self._gains.get(base, 1.0))

    def _unit_rows(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Another tensor's rows, drawn again, with a root mean square of 1."""
        rng = np.random.Generator(np.random.SFC64([self._seed, zlib.crc32(name.encode())]))
        rows = rng.standard_normal(shape, np.float32)
        rows /= np.sqrt(np.mean(rows * rows, axis=1, keepdims=True))
        return rows


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 to bfloat16 bits, round to nearest even; uint16 of the same shape. Finite input."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _split(std: float, least: float) -> tuple[float, int]:
    """std as sigma * 2^exponent with sigma in [least, 2 * least), the spread of scales taken off."""
    exponent = int(np.floor(np.log2(std / SCALE_SPREAD / least)))
    return std / SCALE_SPREAD / 2.0**exponent, exponent


def _pick(rng: np.random.Generator, table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    return table[np.frombuffer(rng.bytes(2 * count), np.uint16)].reshape(shape)


@lru_cache
def _quantiles(count: int) -> np.ndarray:
    normal = NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


@lru_cache
def _fp8_table(sigma: float) -> np.ndarray:
    """e4m3 code of each of 65536 equally likely normal values; 448 is the largest."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    return _nearest(_quantiles(65536) * sigma, values, sign=0x80)


@lru_cache
def _fp4_table(sigma: float) -> np.ndarray:
    """Two e2m1 codes a byte: the low half of the draw picks the low nibble, the high half the high one."""
    codes = _nearest(_quantiles(256) * sigma, np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]), sign=8)
    draws = np.arange(65536)
    return codes[draws & 255] | codes[draws >> 8] << 4


def _nearest(x: np.ndarray, values: np.ndarray, sign: int) -> np.ndarray:
    codes = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(x))
    return (codes + np.where(x < 0, sign, 0)).astype(np.uint8)
