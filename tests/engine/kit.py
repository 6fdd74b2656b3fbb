"""Prompts, references and readable states for tests of whole models; knows no test."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tensorfold import Model, SlotHandle
from tensorfold.state.slot_memory import readable

ROOT = Path(__file__).resolve().parents[2]
CALM, TRAINED = ROOT / "tests" / "data" / "tiny_calm", ROOT / "examples" / "tiny-v41"
SEEDS = (0, 2**63 + 11)
NO_EOS = {1: -math.inf}


def sampling(mode: int) -> dict[str, object]:
    """0 is greedy, 1 and 2 are sampled with a seed each and no eos, 2 with filters, penalties and held ends."""
    if mode == 0:
        return {"seed": 0}
    plain = {"temperature": 1.0, "seed": SEEDS[mode - 1], "logit_bias": NO_EOS}
    if mode == 1:
        return plain
    penalties = {"repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.4}
    ends = {"stop_token_ids": list(range(3, 60)), "min_tokens": 4}
    return {**plain, "temperature": 0.7, "top_p": 0.95, "min_p": 1e-4, **penalties, **ends}


def ids(length: int, salt: int = 0, vocab: int = 500) -> list[int]:
    """A prompt of so many ids, without eos and images."""
    return [3 + int(x) for x in np.random.default_rng(1000 * salt + 7).integers(0, vocab - 4, length)]


def golden_prompts(*names: str) -> list[list[int]]:
    """Ids of prompts of the trained checkpoint."""
    from tensorfold.config import ModelConfig
    from tensorfold.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(TRAINED, ModelConfig.from_folder(TRAINED))
    file = ROOT / "tests" / "data" / "trained" / "golden_index_f32.json"
    prompts = {p["name"]: p["prompt"] for p in json.loads(file.read_text())["prompts"]}
    return [tokenizer.encode(prompts[name], parse_special=True) for name in names]


class References:
    """Undrafted replies, one token a round, of a prompt alone or of several side by side; each is computed once."""

    def __init__(self, model: Model):
        self.model = model
        self._known: dict[str, list] = {}

    def __call__(self, prompt: Sequence[int], count: int, **options) -> list[int]:
        key = repr((list(prompt), sorted(options.items())))
        if len(self._known.get(key, ())) < count:
            assert self.model._engine.free and not self.model._engine.slots, "not alone"
            reply = self.model.generate(prompt, max_tokens=count, draft=False, **options)
            assert len(reply.tokens) == count or reply.finish_reason == "stop"
            self._known[key] = reply.tokens
        return self._known[key][:count]

    def together(self, requests: Sequence[tuple[Sequence[int], dict[str, object]]], count: int) -> list[list[int]]:
        """The replies of up to 16 requests side by side."""
        key = repr((requests, count))
        if key not in self._known:
            handles = [self.model.open(p, max_tokens=count, draft=False, **options) for p, options in requests]
            run(self.model, *handles)
            self._known[key] = [h.tokens for h in handles]
            for handle in handles:
                handle.close()
        return self._known[key]


def run(model: Model, *handles: SlotHandle) -> None:
    """Steps until the handles are done."""
    while not all(h.done for h in handles):
        model.step()


def state(handle: SlotHandle) -> dict[str, np.ndarray]:
    """Every cache row of the slot that a later token can read."""
    return handle._owner.call(lambda engine: readable(engine.memory.caches, handle._slot))


def differences(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of arrays whose bits differ; none for equal states."""
    return [k for k in sorted(a.keys() | b.keys()) if k not in a or k not in b or a[k].tobytes() != b[k].tobytes()]
