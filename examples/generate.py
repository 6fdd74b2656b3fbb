"""Streams a reply and then prints what it took: python examples/generate.py "def fib(n):" --max-tokens 80."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tensorfold
from tensorfold import console
from tensorfold.terminal import show_stats

TINY = Path(__file__).parent / "tiny-v41"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Continue a text with a DeepSeek-V4.1 checkpoint and print the stats.")
    parser.add_argument("prompt", nargs="?", default="def read_lines(path):\n", help="text to continue")
    parser.add_argument("--model", default=str(TINY), help="a folder or a hub id (default: the tiny one here)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens to generate at most (default: 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default), above 0 samples")
    parser.add_argument("--seed", type=int, help="seed of the sampling; without one it is drawn and printed")
    parser.add_argument("--no-draft", action="store_true", help="leave the drafter out: the same tokens, one a round")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    with tensorfold.Model.load(args.model, draft=False if args.no_draft else None) as model:
        choices = {"max_tokens": args.max_tokens, "temperature": args.temperature, "seed": args.seed}
        with model.open(args.prompt, **choices) as slot:
            print(args.prompt, end="", flush=True)
            while not slot.done:
                model.step()
                print(slot.read().text, end="", flush=True)
            print()
            if slot.error is not None:
                raise slot.error
            show_stats(slot.stats, slot.seed)
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main))
