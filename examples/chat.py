"""Chats in the terminal: python examples/chat.py. Ctrl-C stops a reply, /new begins again, Ctrl-D ends the session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorfold
from tensorfold import console

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


class Session:
    """A conversation: the messages so far, and a reply at a time."""

    def __init__(self, model: tensorfold.Model, args: argparse.Namespace):
        self.model = model
        self.options: dict[str, Any] = {"thinking": args.think, "max_tokens": args.max_tokens}
        self.options |= {"temperature": args.temperature, "seed": args.seed}
        if args.think:
            self.options["reasoning_effort"] = int(args.effort) if args.effort.isdigit() else args.effort
        self.start: list[dict[str, Any]] = [{"role": "system", "content": args.system}] if args.system else []
        self.begin()
        self.model.stream_chat([*self.start, {"role": "user", "content": ""}], **self.options).close()  # wrong options

    def begin(self) -> None:
        """Another conversation."""
        self.messages = self.start

    def ask(self, text: str) -> None:
        """Streams the reply; an interrupted one stays in the conversation as far as it came."""
        messages = [*self.messages, {"role": "user", "content": text}]
        content = reasoning = ""
        pieces = self.model.stream_chat(messages, **self.options)  # a conversation that has grown too long ends here
        try:
            for piece in pieces:
                if piece.reasoning:
                    print(dim(piece.reasoning), end="", flush=True)
                if piece.content:
                    print(("\n" if reasoning and not content else "") + piece.content, end="", flush=True)
                content, reasoning = content + piece.content, reasoning + piece.reasoning
                if piece.reply is not None:
                    reply = piece.reply
                    self.messages = [*messages, reply.message]
                    show(reply)
        except KeyboardInterrupt:
            print(dim("\n[interrupted]"))
            said = {"role": "assistant", "content": content, "reasoning_content": reasoning}
            self.messages = [*messages, said] if content or reasoning else self.messages
        finally:
            pieces.close()  # frees the slot now


def show(reply: tensorfold.ChatReply) -> None:
    """The reply's figures, out of the way of its text."""
    stats = reply.stats
    rate = f", {stats.generation_tps:.1f} a second" if stats.generation_tps else ""
    reused = f"{stats.reused_tokens} of {stats.prompt_tokens} prompt tokens reused"
    print(dim(f"\n[{stats.generated_tokens} tokens{rate}; {reused}]"))


def dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    with tensorfold.Model.load(args.model) as model:
        session = Session(model, args)
        while True:
            try:
                line = input("> ").strip()
                if line == "/new":
                    session.begin()
                elif line:
                    session.ask(line)
            except KeyboardInterrupt:
                print(dim("\n[Ctrl-D ends the session]"))
            except EOFError:
                print()
                return 0
            except (ValueError, ArithmeticError) as error:  # the context is full, say: what was said before stays
                print(dim(f"[{error}]\n[nothing is lost; /new begins another conversation]"))


if __name__ == "__main__":
    sys.exit(console.run(main))
