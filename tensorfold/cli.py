"""The `tensorfold` command: generate, chat, describe, receipt, bench; thin over the library, which it only calls."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import tensorfold
from tensorfold import console
from tensorfold.terminal import Session, show_stats

PROMPT = "The quick brown fox jumps over the lazy dog. "


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the status is 0, or 1 where something does not hold."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["receipt"]:  # it has arguments of its own
        from tensorfold.receipt.__main__ import main as receipt

        return receipt(given[1:])
    args = _parser().parse_args(given)
    status: int = args.run(args)
    return status


def start() -> None:
    """The console script."""
    sys.exit(console.run(main))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tensorfold", description=tensorfold.__doc__)
    parser.add_argument("--version", action="version", version=f"tensorfold {tensorfold.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = _model(commands, "generate", _generate, "continue a text, and say what it took")
    command.add_argument("prompt", help='the text to continue, or "-" for standard input')
    command.add_argument("--quiet", action="store_true", help="print the reply alone")
    _sampling(command, 256)
    command = _model(commands, "chat", _chat, "chat in the terminal; Ctrl-C stops a reply, /new begins again")
    command.add_argument("--system", help="a system message to begin with")
    command.add_argument("--think", action="store_true", help="reason before answering; reasoning is shown dimmed")
    command.add_argument("--effort", default="high", help="how long to reason: 1..100, low, high, max (default: high)")
    _sampling(command, None)
    command = commands.add_parser("describe", help="what a checkpoint holds and which memory it needs")
    command.add_argument("model", help="a checkpoint folder")
    command.set_defaults(run=_describe)
    command = _model(commands, "bench", _bench, "tokens a second of this model here, drafts off and on")
    command.add_argument("--prompt-tokens", type=int, default=256, help="length of the prompt (default: 256)")
    command.add_argument("--tokens", type=int, default=64, help="tokens of a reply (default: 64)")
    command.add_argument("--slots", type=int, default=1, help="replies at once (default: 1)")
    commands.add_parser("receipt", help="what holds on this machine, as one JSON: see `tensorfold receipt -h`")
    return parser


def _model(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--model", required=True, help="a checkpoint folder or a hub id (owner/name)")
    command.add_argument("--revision", help="branch, tag or commit of a hub id")
    command.add_argument("--no-draft", action="store_true", help="leave the drafter out: the same tokens")
    command.add_argument("--backend", help="metal, cuda or ops (default: what this machine has)")
    command.add_argument("--max-context", type=int, help="positions that a slot may reach (default: all)")
    command.set_defaults(run=run)
    return command


def _sampling(command: argparse.ArgumentParser, max_tokens: int | None) -> None:
    command.add_argument("--max-tokens", type=int, default=max_tokens, help="tokens to generate at most")
    command.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default), above 0 samples")
    command.add_argument("--top-p", type=float, help="the likeliest tokens with this probability together")
    command.add_argument("--seed", type=int, help="seed of the sampling; without one it is drawn")


def _load(args: argparse.Namespace, **more: Any) -> tensorfold.Model:
    choices = {name: getattr(args, name) for name in ("revision", "backend", "max_context")}
    return tensorfold.Model.load(args.model, draft=False if args.no_draft else None, **choices, **more)


def _choices(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("max_tokens", "temperature", "top_p", "seed")}


def _generate(args: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    with _load(args) as model, model.open(prompt, **_choices(args)) as slot:
        while not slot.done:
            model.step()
            print(slot.read().text, end="", flush=True)
        print(slot.read().text)
        if slot.error is not None:
            raise slot.error
        if not args.quiet:
            show_stats(slot.stats, slot.seed)
    return 0


def _chat(args: argparse.Namespace) -> int:
    options = {**_choices(args), "thinking": args.think}
    if args.think:
        options["reasoning_effort"] = int(args.effort) if args.effort.isdigit() else args.effort
    with _load(args) as model:
        return Session(model, args.system, options).run()


def _describe(args: argparse.Namespace) -> int:
    print(tensorfold.describe(args.model))
    return 0


def _bench(args: argparse.Namespace) -> int:
    with _load(args, prefix_bytes=0) as model:
        text = model.tokenizer.encode(PROMPT, add_bos=False)
        ids = (text * (args.prompt_tokens // len(text) + 1))[: args.prompt_tokens]
        prompts = [[*ids[:-1], i] for i in range(args.slots)]
        print(f"{args.model}: {args.slots} x {args.prompt_tokens} prompt and {args.tokens} reply tokens, greedy")
        for draft in (False, True) if model.config.num_nextn_predict_layers and not args.no_draft else (False,):
            model.generate(prompts, max_tokens=args.tokens, draft=draft)  # builds what the timed run uses
            begun = time.perf_counter()
            made = [r.stats for r in model.generate(prompts, max_tokens=args.tokens, draft=draft)]
            seconds, first = time.perf_counter() - begun, max(s.ttft_s or 0.0 for s in made)
            prompt, reply = (sum(getattr(s, f"{of}_tokens") for s in made) for of in ("prompt", "generated"))
            print(
                f"drafts {'on: ' if draft else 'off:'} first text after {first:.2f} s ({prompt / first:.1f} tokens a "
                f"second), then {(reply - len(made)) / max(seconds - first, 1e-9):.1f} tokens a second"
            )
    return 0
