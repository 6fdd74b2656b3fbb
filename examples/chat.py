"""Chats in the terminal: python examples/chat.py. Ctrl-C stops a reply, /new begins again, Ctrl-D ends the session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorfold
from tensorfold import console
from tensorfold.terminal import Session

TINY = Path(__file__).parent / "tiny-v41"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Chat with a DeepSeek-V4.1 checkpoint (needs tensorfold[chat]).")
    parser.add_argument("--model", default=str(TINY), help="a checkpoint folder or a hub id (default: tiny-v41)")
    parser.add_argument("--system", help="a system message to begin with")
    parser.add_argument("--think", action="store_true", help="reason before answering; reasoning is shown dimmed")
    parser.add_argument("--effort", default="high", help="how long to reason: 1..100, low, high, max (default: high)")
    parser.add_argument("--max-tokens", type=int, help="tokens of one reply at most (default: what the context leaves)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (default)")
    parser.add_argument("--seed", type=int, help="seed of every reply; without one it is drawn")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    options: dict[str, Any] = {"thinking": args.think, "max_tokens": args.max_tokens}
    options |= {"temperature": args.temperature, "seed": args.seed}
    if args.think:
        options["reasoning_effort"] = int(args.effort) if args.effort.isdigit() else args.effort
    with tensorfold.Model.load(args.model) as model:
        return Session(model, args.system, options).run()


if __name__ == "__main__":
    sys.exit(console.run(main))
