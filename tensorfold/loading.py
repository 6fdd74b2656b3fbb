"""From a checkpoint folder to an engine: opens, chooses a backend, builds the network;
runs on the model's own thread."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx

from tensorfold.arguments import flag, integer, word
from tensorfold.backend.choice import BACKENDS, make_backend
from tensorfold.checkpoint.reader import MAPPED, Checkpoint
from tensorfold.config import ModelConfig
from tensorfold.description import describe_open, size
from tensorfold.engine.engine import Engine
from tensorfold.engine.lanes import ROWS, Lanes
from tensorfold.kernels.launch import BackendError, first_errors
from tensorfold.memory import ENGRAM, EXPERTS, MemoryUse, memory_use
from tensorfold.network.dspark import Drafter
from tensorfold.network.engram import EngramTables
from tensorfold.network.forward import Network
from tensorfold.network.row_check import one_of_each_role, row_dependent_operations
from tensorfold.network.streaming import ExpertPool, Streaming
from tensorfold.progress import SLOW_S, bar, wanted
from tensorfold.residents import RESIDENTS
from tensorfold.state.caches import Caches
from tensorfold.state.slot_memory import SlotMemory
from tensorfold.text.token_map import engram_token_map
from tensorfold.text.tokenizer import Tokenizer
from tensorfold.wired import WIRED

T = TypeVar("T")
LOG = logging.getLogger("tensorfold.load")
PROMPT_CHUNK = 64


@dataclass(frozen=True)
class Options:
    """Checked arguments of Model.load."""

    draft: bool | None
    max_slots: int
    max_context: int | None
    backend: str | None
    prefix_bytes: int
    snapshot_tokens: int
    fixed_drafts: bool
    engram: str
    experts: str
    expert_bytes: int | None
    progress: bool

    @staticmethod
    def check(
        draft: Any, max_slots: Any, max_context: Any, backend: Any, prefix_bytes: Any, snapshot_tokens: Any,
        draft_policy: Any, engram: Any, experts: Any, expert_bytes: Any, progress: Any,
    ) -> Options:  # fmt: skip
        """Raises TypeError or ValueError naming the argument."""
        word("draft_policy", draft_policy, ("measured", "fixed"))
        if experts == "mapped" and expert_bytes is not None:
            raise ValueError(f'expert_bytes={expert_bytes} is for streamed experts, and experts="mapped" has none')
        return Options(
            draft=None if draft is None else flag("draft", draft),
            max_slots=integer("max_slots", max_slots, 1, ROWS),
            max_context=None if max_context is None else integer("max_context", max_context, 1),
            backend=None if backend is None else word("backend", backend, BACKENDS),
            prefix_bytes=integer("prefix_bytes", prefix_bytes, 0),
            snapshot_tokens=integer("snapshot_tokens", snapshot_tokens, 1),
            fixed_drafts=draft_policy == "fixed",
            engram=word("engram", engram, ENGRAM),
            experts=word("experts", experts, EXPERTS),
            expert_bytes=None if expert_bytes is None else integer("expert_bytes", expert_bytes, 1),
            progress=wanted(None if progress is None else flag("progress", progress)),
        )


@dataclass
class Parts:
    """What a loaded model is made of."""

    checkpoint: Checkpoint
    config: ModelConfig
    tokenizer: Tokenizer
    engine: Engine
    identity: str
    engram: EngramTables
    pool: ExpertPool | None
    progress: bool
    undo: ExitStack

    def memory(self) -> MemoryUse:
        """What the model holds now."""
        return memory_use(self.checkpoint, self.engine, self.engram, self.pool)

    def streaming(self) -> Streaming | None:
        """What streaming did, or None where all experts are in memory."""
        return None if self.pool is None else self.pool.stats

    def close(self) -> None:
        """Ends open slots, empties what holds arrays and graphs, whoever still refers to it, and lets the files go."""
        self.undo.close()


class LoadStopped(Exception):
    """Nobody waits for the load any more."""


def load(folder: Path, options: Options, stopped: Callable[[], bool] = lambda: False) -> Parts:
    """Everything verified first, then weights layer by layer. Raises LoadStopped between two layers once `stopped()`;
    then, as after any error, nothing of what was loaded stays."""
    with ExitStack() as undo:
        checkpoint = Checkpoint.open(folder, drafter=options.draft is not False)
        undo.callback(checkpoint.close)
        return _load(checkpoint, options, stopped, undo)


def _load(checkpoint: Checkpoint, options: Options, stopped: Callable[[], bool], undo: ExitStack) -> Parts:
    def go_on() -> None:
        if stopped():
            raise LoadStopped

    def emptied(part: T) -> T:
        undo.callback(vars(part).clear)
        return part

    config = checkpoint.config
    if options.draft and not checkpoint.has_drafter:
        raise ValueError(f"draft=True, but {checkpoint.path} has no drafter (num_nextn_predict_layers is 0)")
    if options.max_context is not None and options.max_context > config.max_position_embeddings:
        raise ValueError(
            f"max_context={options.max_context} is more than the {config.max_position_embeddings} positions "
            "the model has"
        )
    wanted = options.max_slots, options.max_context, options.engram, options.experts, options.expert_bytes
    planned, resident = RESIDENTS.admit(describe_open(checkpoint), *wanted, going=stopped)
    undo.callback(RESIDENTS.release, resident)
    undo.callback(WIRED.release, WIRED.hold(planned.wired))
    LOG.info(
        "loading %s: needs %s; Engram tables: %s; experts: %s", checkpoint.path, size(planned.needs), planned.engram,
        planned.experts,
    )  # fmt: skip
    begun = time.perf_counter()
    tokenizer = Tokenizer.from_folder(checkpoint.path, config)
    token_map = engram_token_map(tokenizer, config) if config.engram_layer_ids else None
    engram = emptied(EngramTables(checkpoint, config, token_map, planned.engram == "ram", on_table=go_on))
    undo.callback(engram.close)
    backend = emptied(make_backend(options.backend, config))
    pool = None
    if planned.experts == "streamed":
        pool = emptied(ExpertPool(backend, checkpoint, planned.expert_entries))
        undo.callback(pool.close)
    stages = config.num_nextn_predict_layers if checkpoint.has_drafter else 0
    with bar(config.num_hidden_layers + stages, "layer", "loading", options.progress) as layers:

        def loaded() -> None:
            checkpoint.check()  # a shard that changes while it is read would give a mixture
            layers.update()
            go_on()

        network = emptied(Network(checkpoint, config, backend, loaded, pool))
        drafter = emptied(Drafter(checkpoint, config, backend, network, loaded)) if stages else None
    checkpoint.check()
    mx.clear_cache()
    keep_rows_apart(network, engram, options.progress)
    engram.restart()
    if pool is not None:
        pool.restart()
    go_on()
    caches = emptied(Caches(config, options.max_slots, 1, stages))
    memory = emptied(SlotMemory(caches))
    lanes = emptied(Lanes(network, drafter, memory, engram.gather, PROMPT_CHUNK, options.fixed_drafts))
    emptied(lanes.forward)
    if MAPPED in checkpoint.taken().values():
        lanes.guard = checkpoint.check
    context = options.max_context or config.max_position_embeddings
    engine = emptied(Engine(lanes, tokenizer, context, options.prefix_bytes, options.snapshot_tokens))
    undo.callback(engine.end)
    LOG.info("loaded %s on %s in %.1f s", checkpoint.path, backend.name, time.perf_counter() - begun)
    found = checkpoint, config, tokenizer, engine, checkpoint.identity, engram, pool
    return Parts(*found, options.progress, undo.pop_all())


def keep_rows_apart(network: Network, engram: EngramTables, shown: bool) -> None:
    """Tries the operations on the real weights: where rows of a launch change each other's bits, each gets its own.

    Raises BackendError where they do not run at all.
    """
    backend = network.backend
    what = "checking" if backend.name == "ops" else "compiling and checking kernels"
    try:
        with bar(len(one_of_each_role(network.config)), "layer", what, shown, SLOW_S) as layers:
            dependent = row_dependent_operations(network, engram.gather, layers.update)
    except RuntimeError as error:
        what = first_errors(str(error))
        raise BackendError(
            f"{backend.name} does not run here: {what}; "
            'backend="ops" runs plain MLX operations; please report it with python -m tensorfold.receipt'
        ) from error
    if dependent:
        backend.by_row = True
        words = (
            f"on this device {', '.join(sorted(dependent))} gave rows of one launch other bits than the rows alone: "
            "every launch runs one row, slower and right; please report it and what python -m tensorfold.receipt says"
        )
        LOG.warning(words)
        warnings.warn(words, RuntimeWarning, stacklevel=2)
