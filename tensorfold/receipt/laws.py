"""The laws of drafts, batches and resumed slots through the public Model: equal tokens, and equal saved states.

Knows no arrays: a saved state holds exactly what a later token can read, so equal states are equal files.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tensorfold.handle import SlotHandle
from tensorfold.model import Model
from tensorfold.receipt.finding import Finding, holds

PROMPTS = (
    "def fib(n):\n    if n < 2:\n        return n\n",
    "import os\n",
    "In the beginning",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "What is a lane round? One forward over all rows, ",
    "a",
    "for i in range(10):\n    print(i, i * i)\n\nwhile True:\n    x = input()\n",
    "0123456789 " * 9,
)
SEED = 2**63 + 11


def options(index: int) -> dict[str, Any]:
    """Sampling of a prompt by its number: greedy, plain sampling, and sampling with filters and a penalty in turn."""
    if index % 2 == 0:
        return {"seed": 0}
    plain = {"temperature": 1.0, "seed": SEED + index}
    return plain if index % 4 == 1 else {**plain, "temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1}


class Reply(NamedTuple):
    """The tokens of a reply, and the SHA-256 of the file its slot saves."""

    tokens: list[int]
    state: str


class Laws:
    """The checks of one model, which must keep no prompts (`prefix_bytes=0`) and have at least count + 2 slots."""

    def __init__(self, model: Model, count: int, tokens: int):
        self.model, self.tokens = model, tokens
        self.prompts, self.drafts = range(count), model.config.num_nextn_predict_layers > 0
        self.sampled = f"{count} prompts x {tokens} tokens, greedy and sampled"

    def open(self, index: int, **more: Any) -> SlotHandle:
        """A slot for a prompt by its number."""
        return self.model.open(PROMPTS[index % len(PROMPTS)], max_tokens=self.tokens, **options(index), **more)

    def run(self, handles: Sequence[SlotHandle]) -> list[Reply]:
        """The replies of open slots, which are closed."""
        while not all(h.done for h in handles):
            self.model.step()
        with tempfile.TemporaryDirectory() as folder:
            replies = [Reply(h.tokens, _sha(h, Path(folder) / "slot")) for h in handles]
        for handle in handles:
            handle.close()
        return replies

    @cached_property
    def alone(self) -> list[Reply]:
        """Every prompt alone and undrafted."""
        return [self.run([self.open(i, draft=False)])[0] for i in self.prompts]

    def drafted(self, count: int | None = None) -> Finding:
        """Alone and drafted; the first `count` prompts, or all."""
        some = self.prompts[:count]
        got = [self.run([self.open(i, draft=True)])[0] for i in some]
        return self._compare("drafted equals undrafted", got, some)

    def batched(self) -> Finding:
        """Side by side and undrafted."""
        got = self.run([self.open(i, draft=False) for i in self.prompts])
        return self._compare("a batch equals each alone", got, self.prompts)

    def resumed(self) -> list[Finding]:
        """Side by side and drafted, one forked and one saved and restored on the way; all go on together."""
        handles = [self.open(i) for i in self.prompts]
        while not all(h.done or len(h.tokens) > self.tokens // 4 for h in handles[:2]):
            self.model.step()
        with tempfile.TemporaryDirectory() as folder:
            handles[-1].save(Path(folder) / "slot")
            again = self.model.restore(Path(folder) / "slot", draft=False)
        replies = self.run([*handles, handles[0].fork(), again])
        last = self.prompts[-1]
        return [
            self._compare("a drafted batch equals each alone", replies[:-2], self.prompts),
            self._compare("a forked slot equals a fresh one", replies[-2:-1], [0]),
            self._compare("a restored slot equals a fresh one", replies[-1:], [last]),
        ]

    def findings(self, drafted: int | None = None, batched: bool = True) -> list[Finding]:
        """All of them; a drafted batch is a batch too, so the undrafted one can be left out where time is short."""
        alone = [self.drafted(drafted)] if self.drafts else []
        return [*alone, *([self.batched()] if batched or not self.drafts else []), *self.resumed()]

    def _compare(self, name: str, got: Sequence[Reply], prompts: Sequence[int]) -> Finding:
        broken = []
        for i, reply in zip(prompts, got, strict=True):
            alone = self.alone[i]
            if reply.tokens != alone.tokens:
                broken.append(f"prompt {i}: other tokens from {_first_difference(reply.tokens, alone.tokens)} on")
            elif reply.state != alone.state:
                broken.append(f"prompt {i}: another saved state")
        total = sum(len(r.tokens) for r in got)
        return holds(name, broken, f"{len(got)} of {self.sampled}: {total} tokens and {len(got)} saved states")


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _sha(handle: SlotHandle, path: Path) -> str:
    handle.save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()
