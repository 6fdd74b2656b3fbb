"""Several conversations share one model inside an asyncio program: python examples/embed_app.py. One is cancelled."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import tensorfold
from tensorfold import console

TINY = Path(__file__).parent / "tiny-v41"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run several conversations at once on one model, and cancel one.")
    parser.add_argument("topics", nargs="*", default=["dog", "river", "king"], help="conversations (dog river king)")
    parser.add_argument("--model", default=str(TINY), help="a checkpoint folder or a hub id (default: tiny-v41)")
    parser.add_argument("--max-tokens", type=int, default=40, help="tokens of one reply at most (default: 40)")
    parser.add_argument("--cancel-after", type=int, default=3, help="pieces after which one is cancelled (default: 3)")
    return parser.parse_args(argv)


Messages = list[dict[str, Any]]


async def stream(model: tensorfold.Model, messages: Messages, **options: Any) -> AsyncGenerator[tensorfold.ChatPiece]:
    """Model.stream_chat for an event loop: rounds run in a thread, cancelling the task ends the wait or the reply."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as thread:  # one thread a conversation keeps its calls in order
        try:
            call = partial(model.stream_chat, messages, wait=True, cancel=stop, **options)
            pieces = await loop.run_in_executor(thread, call)
            while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
                yield piece
        finally:
            stop.set()


class Conversation:
    """Messages of one user; each question waits for the answer, other conversations go on meanwhile."""

    def __init__(self, model: tensorfold.Model, name: str, **options: Any):
        self.model, self.name, self.options = model, name, options
        self.messages: Messages = []
        self.tokens = asyncio.Semaphore(0)  # one release a piece, for whoever watches

    async def ask(self, question: str) -> tensorfold.ChatReply:
        messages = [*self.messages, {"role": "user", "content": question}]
        async with aclosing(stream(self.model, messages, **self.options)) as pieces:
            async for piece in pieces:
                self.tokens.release()
                if piece.reply is not None:
                    self.messages = [*messages, piece.reply.message]
                    return piece.reply
        raise RuntimeError("the reply ended without its last piece")


async def talk(conversation: Conversation) -> list[str]:
    """Two turns: the second one's prompt begins with the first, whose state is still there."""
    first = await conversation.ask(f"define: {conversation.name}")
    second = await conversation.ask(f"use the noun {conversation.name} in a sentence")
    reused = f"{second.stats.reused_tokens} of {second.stats.prompt_tokens} prompt tokens reused"
    return [f"{conversation.name}: {first.content}", f"{conversation.name}: {second.content}  ({reused})"]


async def cancelled(conversation: Conversation, after: int) -> str:
    """Begins a long answer and cancels it after a few pieces."""
    task = asyncio.create_task(conversation.ask("complete: def read_lines(path):"))
    for _ in range(after):
        await conversation.tokens.acquire()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return f"{conversation.name}: cancelled, {len(conversation.messages)} messages kept"
    return f"{conversation.name}: was done before it could be cancelled"


async def serve(model: tensorfold.Model, args: argparse.Namespace) -> None:
    options = {"thinking": False, "max_tokens": args.max_tokens}
    talks = [talk(Conversation(model, topic, **options)) for topic in args.topics]
    cut = cancelled(Conversation(model, "impatient", **options), args.cancel_after)
    last, done = await asyncio.gather(cut, asyncio.gather(*talks))
    print("\n".join([*(line for lines in done for line in lines), last]))
    print(model)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    with tensorfold.Model.load(args.model) as model:
        asyncio.run(serve(model, args))
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main))
