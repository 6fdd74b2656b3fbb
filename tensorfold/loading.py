"""From a checkpoint folder to an engine: opens, chooses a backend, builds the network;
runs on the model's own thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from tqdm import tqdm

from tensorfold.backend.ops import OpsBackend, rows_are_independent
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.config import ModelConfig
from tensorfold.description import describe_open
from tensorfold.engine.engine import Engine
from tensorfold.engine.lanes import ROWS, Lanes
from tensorfold.memory import check_memory
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import EngramTables
from tensorfold.network.forward import Network
from tensorfold.state.caches import Caches
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer

BACKENDS = ("ops",)
PROMPT_CHUNK = 64


@dataclass(frozen=True)
class Options:
    """Checked arguments of Model.load."""

    draft: bool | None
    max_slots: int
    max_context: int | None
    backend: str
    prefix_bytes: int
    snapshot_tokens: int
    fixed_drafts: bool
    progress: bool

    @staticmethod
    def check(
        draft: Any, max_slots: Any, max_context: Any, backend: Any, prefix_bytes: Any, snapshot_tokens: Any,
        draft_policy: Any, progress: Any,
    ) -> Options:  # fmt: skip
        """Raises TypeError or ValueError naming the argument."""
        if draft is not None and not isinstance(draft, bool):
            raise TypeError(f"draft={draft!r} must be True, False or None")
        limits = {"max_slots": (max_slots, 1, ROWS), "prefix_bytes": (prefix_bytes, 0, None)}
        limits["snapshot_tokens"] = (snapshot_tokens, 1, None)
        if max_context is not None:
            limits["max_context"] = (max_context, 1, None)
        for name, (value, low, high) in limits.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}={value!r} must be an integer")
            if value < low or (high is not None and value > high):
                raise ValueError(f"{name}={value} must be at least {low}" + (f" and at most {high}" if high else ""))
        if backend is not None and backend not in BACKENDS:
            raise ValueError(f"backend={backend!r} is not one of {', '.join(BACKENDS)}")
        if draft_policy not in ("measured", "fixed"):
            raise ValueError(f'draft_policy={draft_policy!r} must be "measured" or "fixed"')
        return Options(
            draft,
            max_slots,
            max_context,
            backend or "ops",
            prefix_bytes,
            snapshot_tokens,
            draft_policy == "fixed",
            bool(progress),
        )


@dataclass
class Parts:
    """What a loaded model is made of."""

    checkpoint: Checkpoint
    config: ModelConfig
    tokenizer: Tokenizer
    engine: Engine
    identity: str

    def close(self) -> None:
        """Lets the mapping go; the arrays go with their last reference."""
        self.checkpoint.close()


def load(folder: Path, options: Options) -> Parts:
    """Everything verified first, then weights layer by layer."""
    checkpoint = Checkpoint.open(folder, drafter=options.draft is not False)
    try:
        return _load(checkpoint, options)
    except BaseException:
        checkpoint.close()
        raise


def _load(checkpoint: Checkpoint, options: Options) -> Parts:
    config = checkpoint.config
    if options.draft and not checkpoint.has_drafter:
        raise ValueError(f"draft=True, but {checkpoint.path} has no drafter (num_nextn_predict_layers is 0)")
    if options.max_context is not None and options.max_context > config.max_position_embeddings:
        raise ValueError(
            f"max_context={options.max_context} is more than the {config.max_position_embeddings} positions "
            "the model has"
        )
    check_memory(describe_open(checkpoint), options.max_context)
    tokenizer = Tokenizer.from_folder(checkpoint.path, config)
    token_map = engram_token_map(tokenizer, config) if config.engram_layer_ids else None
    engram = EngramTables(checkpoint, config, token_map)
    backend = OpsBackend(config, by_row=not rows_are_independent(config))
    stages = config.num_nextn_predict_layers if checkpoint.has_drafter else 0
    with tqdm(
        total=config.num_hidden_layers + stages, unit="layer", desc="loading", disable=not options.progress
    ) as bar:
        network = Network(checkpoint, config, backend, lambda: bar.update())
        drafter = Drafter(checkpoint, config, backend, network, lambda: bar.update()) if stages else None
    mx.clear_cache()
    caches = Caches(config, options.max_slots, 1, stages)
    lanes = Lanes(network, drafter, caches, engram, PROMPT_CHUNK, options.fixed_drafts)
    context = options.max_context or config.max_position_embeddings
    engine = Engine(lanes, tokenizer, context, options.prefix_bytes, options.snapshot_tokens)
    return Parts(checkpoint, config, tokenizer, engine, checkpoint.identity)
