"""mlx-lm's decoder layer of `deepseek_v41` on random weights, called eagerly, built on the clock. Knows none of ours.

Weights have the checkpoint's shapes and types and go through mlx-lm's own `sanitize`: FP8 becomes mxfp8, FP4 mxfp4.
Routed experts are drawn packed, as a stack of them is more than MLX quantises at once. Caches are as after a prompt.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from benchmarks.kernels import seconds
from benchmarks.random_layers import RandomSource
from tensorfold.config import ModelConfig

INSTALLED = "auto"


def find(where: str = INSTALLED) -> tuple[Any, str]:
    """mlx-lm's `deepseek_v41` and version, of this Python or of `mlx_lm` in a folder; raises ImportError without it."""
    if where != INSTALLED:
        if not (Path(where) / "mlx_lm").is_dir():
            raise ImportError(f"{where} holds no folder mlx_lm")
        sys.path.insert(0, where)
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None:
        raise ImportError("mlx-lm is not installed in this Python: install the bench extra, or see --mlx-lm")
    if "mlx_lm" not in sys.modules:  # left unrun: it would import transformers, which a layer has no use for
        sys.modules["mlx_lm"] = importlib.util.module_from_spec(spec)
    try:
        module, about = map(importlib.import_module, ("mlx_lm.models.deepseek_v41", "mlx_lm._version"))
    except ImportError as error:
        raise ImportError(f"mlx-lm is here, its deepseek_v41 is not: {error.name or 'a name'} is missing") from error
    return module, str(about.__version__)


class PeerLayer:
    """Layer `index` of mlx-lm's model; raises ValueError for one with Engram, which mlx-lm does not have."""

    def __init__(self, module: Any, config: ModelConfig, index: int):
        self.module, self.config, self.role = module, config, config.roles[index]
        if self.role.engram is not None:
            raise ValueError(f"layer {index} has Engram, and no layer of mlx-lm's does: give a layer without")
        values = {f.name: getattr(config, f.name) for f in fields(module.ModelArgs) if hasattr(config, f.name)}
        yarn = {n: getattr(config, n) for n in ("beta_fast", "beta_slow", "original_max_position_embeddings")}
        yarn["factor"] = config.rope_factor
        values |= {"engram_layer_ids": (), "rope_scaling": yarn, "num_hidden_layers": index + 1, "n_routed_experts": 1}
        model = module.Model(module.ModelArgs(**values))
        self.layer = model.layers[index]
        _load(self.layer, _weights(model, RandomSource(config), f"layers.{index}."), config.n_routed_experts)

    def time(self, rows: int, context: int, turns: int, repeats: int) -> float:
        """Median seconds of the layer on `rows` new tokens of one sequence that has `context` tokens.

        It follows itself `turns` times in one evaluation, each time on a copy of the same cache, as layers have theirs.
        Raises ArithmeticError for an output that is not finite.
        """
        c, cache, before = self.config, self._cache(context), self._before(rows, context)
        x = mx.random.normal((1, rows, c.hc_mult, c.hidden_size)).astype(mx.bfloat16)
        pre = mx.full((1, rows, c.hc_mult), 0.25)
        window = self.module._window_indices(previous=cache.window.shape[1], length=rows, window=c.sliding_window)[None]
        mx.eval(x, pre, window, _arrays(cache), before)

        def run() -> list[mx.array]:
            s, mix, left = x, pre, []
            for _ in range(turns):
                own = copy.copy(cache)
                s, mix = self.layer(s, mix, start_pos=context, window_idx=window, cache=own, shared=dict(before))
                left += _arrays(own)
            return [s, mix, *left]

        if not mx.isfinite(run()[0]).all().item():
            raise ArithmeticError("the layer's output is not finite, so its rows are all routed alike")
        return seconds(run, repeats) / turns

    def _cache(self, context: int) -> Any:
        """The layer's own cache after `context` tokens."""
        c, role, cache = self.config, self.role, self.module.LayerCache(self.config.sliding_window)
        cache.offset, cache.window = context, _rows(min(context, c.sliding_window), c.head_dim)
        if role.owns_kv:
            cache.compress_kv = _rows(context // role.ratio, c.head_dim)
            cache.index_k = _rows(context // role.ratio, c.index_head_dim) if role.owns_index else None
        if role.owns_kv and role.ratio > 1:
            cache.pending_kv = cache.pending_gate = _rows(role.ratio, c.head_dim, mx.float32)[:, : context % role.ratio]
        return cache

    def _before(self, rows: int, context: int) -> dict[str, mx.array]:
        """What earlier layers of the same forward hand on to this one."""
        c, role, found = self.config, self.role, dict[str, mx.array]()
        entries = (context + rows) // role.ratio if role.ratio else 0
        if role.ratio and not role.owns_kv:
            found["compress_kv"] = _rows(entries, c.head_dim)
            found["index_k"] = _rows(entries, c.index_head_dim)
        if role.ratio and not role.owns_index:
            order = mx.argsort(mx.random.uniform(shape=(1, rows, context // role.ratio)), axis=-1)
            found["topk_idx"] = order[..., : c.index_topk].astype(mx.int32)
        if role.candidates == "read":
            found["candidates"] = mx.ones((1, rows, entries), mx.bool_)
        return found


def _weights(model: Any, source: RandomSource, prefix: str) -> dict[str, mx.array]:
    """The layer's tensors as mlx-lm's `sanitize` leaves them; one routed expert, of zeros, stands for all."""
    raw = {name: source.array(name) for name in source.names(prefix) if ".experts." not in name}
    raw |= {name: mx.array(source.raw(name)) for name in source.names(f"{prefix}ffn.experts.0.")}
    return {name.removeprefix(f"model.{prefix}"): a for name, a in model.sanitize(raw).items()}


def _load(layer: Any, weights: dict[str, mx.array], experts: int) -> None:
    """Quantised modules where there are scales, as mlx-lm's `load_model` decides it, and every parameter in place."""

    def packed(path: str, module: nn.Module) -> dict[str, Any] | bool:
        if f"{path}.scales" not in weights:
            return False
        bits = weights[f"{path}.weight"].shape[-1] * 32 // module.weight.shape[-1]
        return {"group_size": 32, "bits": bits, "mode": f"mxfp{bits}"}

    nn.quantize(layer, class_predicate=packed)
    if odd := set(tree_flatten(layer.parameters(), destination={})) ^ set(weights):
        raise ValueError(f"parameters of mlx-lm's layer without weights, or the reverse: {sorted(map(str, odd))}")
    stacks = {n: _stack((experts, *one.shape[1:]), one.dtype) for n, one in weights.items() if ".switch_mlp." in n}
    layer.eval().update(tree_unflatten([*(weights | stacks).items()]))
    mx.eval(layer.parameters())


def _stack(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Packed codes (uint32) of either sign, or scales 112 .. 119 (uint8)."""
    count = math.prod(shape)
    words = mx.random.randint(0, 2**31 - 1, (-(-count * dtype.size // 4),), mx.int32).view(mx.uint32)
    words = (words & 0x07070707) | 0x70707070 if dtype == mx.uint8 else words
    mx.eval(words)
    return words.view(dtype)[:count].reshape(shape)


def _rows(count: int, width: int, dtype: mx.Dtype = mx.bfloat16) -> mx.array:
    return mx.random.normal((1, count, width)).astype(dtype)


def _arrays(cache: Any) -> list[mx.array]:
    return [value for value in vars(cache).values() if isinstance(value, mx.array)]
