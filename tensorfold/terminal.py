"""What programs in a terminal share: a chat session over a model, and a reply's figures; parses no arguments."""

from __future__ import annotations

import sys
from typing import Any

from tensorfold.chat import ChatReply
from tensorfold.engine.reply import Stats
from tensorfold.model import Model


class Session:
    """A conversation in the terminal: the messages so far, and a reply at a time; `options` are those of `chat`."""

    def __init__(self, model: Model, system: str | None, options: dict[str, Any]):
        self.model, self.options = model, options
        self.start: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
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
                    self.messages = [*messages, piece.reply.message]
                    _show(piece.reply)
        except KeyboardInterrupt:
            print(dim("\n[interrupted]"))
            said = {"role": "assistant", "content": content, "reasoning_content": reasoning}
            self.messages = [*messages, said] if content or reasoning else self.messages
        finally:
            pieces.close()  # frees the slot now

    def run(self) -> int:
        """Asks what is typed, line by line, until the input ends; /new begins another conversation."""
        while True:
            try:
                line = input("> ").strip()
                if line == "/new":
                    self.begin()
                elif line:
                    self.ask(line)
            except KeyboardInterrupt:
                print(dim("\n[Ctrl-D ends the session]"))
            except EOFError:
                print()
                return 0
            except (ValueError, ArithmeticError) as error:  # the context is full, say: what was said before stays
                print(dim(f"[{error}]\n[nothing is lost; /new begins another conversation]"))


def show_stats(stats: Stats, seed: int) -> None:
    """One line a figure, on stderr, so that the reply alone can be piped."""
    rates = [f", {tps:.1f} a second" if tps else "" for tps in (stats.prompt_tps, stats.generation_tps)]
    rows = {
        "prompt": f"{stats.prompt_tokens} tokens{rates[0]}",
        "reply": f"{stats.generated_tokens} tokens{rates[1]}",
        "rounds": f"{stats.rounds}",
        "drafts": f"{sum(stats.accepted)} of {sum(stats.drafted)} accepted, by position {stats.accepted}",
        "memory": f"{stats.peak_memory / 2**20:.0f} MiB at the peak",
        "seed": f"{seed}",
        "tokens": f"sha256 {stats.token_sha}",
    }
    print("".join(f"\n{name:>8}  {value}" for name, value in rows.items()), file=sys.stderr)


def dim(text: str) -> str:
    """The text as it looks beside a reply."""
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


def _show(reply: ChatReply) -> None:
    stats = reply.stats
    rate = f", {stats.generation_tps:.1f} a second" if stats.generation_tps else ""
    reused = f"{stats.reused_tokens} of {stats.prompt_tokens} prompt tokens reused"
    print(dim(f"\n[{stats.generated_tokens} tokens{rate}; {reused}]"))
