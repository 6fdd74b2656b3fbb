"""The same prompt fresh, drafted, batched and resumed, with a hash of every bit: python examples/same_bits.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx
import numpy as np

import tensorfold as tf
from tensorfold import console

TINY = Path(__file__).parent / "tiny-v41"
OTHERS = ("import os\n", "And the LORD ", "def main(")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Show that how a prompt is run changes no bit of its reply.")
    parser.add_argument("prompt", nargs="?", default="def fib(n):", help="text to continue")
    parser.add_argument("--model", default=str(TINY), help="a folder or a hub id (default: the tiny one here)")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a reply (default: 48)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 is greedy (default: 0.8)")
    return parser.parse_args(argv)


def digest(bits: bytes) -> str:
    return sha256(bits).hexdigest()[:12]


def replies(model: tf.Model, args: argparse.Namespace, path: Path) -> list[str]:
    """The reply in four ways; a line each, and the hashes of tokens and log-probabilities."""
    seen: list[str] = []

    def begin(prompt: str, draft: bool) -> tf.SlotHandle:
        choices = {"max_tokens": args.tokens, "temperature": args.temperature}
        return model.open(prompt, **choices, seed=7, logprobs=5, draft=draft)

    def finish(how: str, slot: tf.SlotHandle) -> None:
        while model.step():
            pass
        if slot.error is not None:
            raise slot.error
        seen.append(digest(repr([(t.token, t.logprob, t.top) for t in slot.logprobs or []]).encode()))
        print(f"  {how:36} {seen[-1]}  {len(slot.tokens)} tokens in {slot.stats.rounds} rounds")

    with begin(args.prompt, False) as slot:
        finish("fresh, alone, no drafts", slot)
    with begin(args.prompt, True) as slot:
        finish("drafted", slot)
    with begin(args.prompt, True) as slot:
        others = [begin(prompt, True) for prompt in OTHERS]
        finish(f"drafted, beside {len(others)} others", slot)
    del others
    with begin(args.prompt, False) as slot:
        while len(slot.tokens) < args.tokens // 2 and model.step():
            pass
        slot.save(path)
    with model.restore(path) as slot:
        finish("saved halfway, restored, drafted on", slot)
    return seen


def products() -> dict[str, Callable[[int], object]]:
    """The first row of a matrix product of so many rows, by what computes it."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((8, 1024), (1024, 1024)))
    a, b = mx.array(x), mx.array(w)
    device, packed = mx.default_device().type.name, mx.quantize(b)
    return {
        f"numpy {np.__version__}": lambda rows: (x[:rows] @ w.T)[0],
        f"mlx, {device}": lambda rows: (a[:rows] @ b.T)[0],
        f"mlx, {device}, quantised weights": lambda rows: mx.quantized_matmul(a[:rows], *packed)[0],
    }


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    print(f"TensorFold, {args.prompt!r} and what follows: tokens and log-probabilities, every bit")
    with TemporaryDirectory() as folder, tf.Model.load(args.model, prefix_bytes=0, draft_policy="fixed") as model:
        seen = replies(model, args, Path(folder) / "half.state")
    print("  all equal" if len(set(seen)) == 1 else "  NOT EQUAL: please report it")
    print("Elsewhere: one row of a matrix product, by itself and as the first of 8")
    for name, row in products().items():
        alone, among = (digest(np.array(row(rows)).tobytes()) for rows in (1, 8))
        print(f"  {name:36} {alone}  {among}  {'equal' if alone == among else 'not equal'}")
    return 0 if len(set(seen)) == 1 else 1


if __name__ == "__main__":
    sys.exit(console.run(main))
