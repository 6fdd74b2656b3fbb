"""Runs a file of prompts: python examples/batch.py in.jsonl out.jsonl. Started again, it goes on where it stopped."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

import tensorfold
from tensorfold import console

TINY = Path(__file__).parent / "tiny-v41"
Jobs = Iterator[tuple[int, str]]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='JSON lines in, JSON lines out. A line in is {"prompt": ...} with any keyword of Model.open; '
        'a line out has "line" (the number of its line in), "text" and more, or "error". Lines come out as they finish.'
    )
    parser.add_argument("input", type=Path, help="a file of JSON lines")
    parser.add_argument("output", type=Path, help="the file to write; lines that it has are not run again")
    parser.add_argument("--model", default=str(TINY), help="a checkpoint folder or a hub id (default: tiny-v41)")
    parser.add_argument("--slots", type=int, default=8, help="prompts at a time, 1..16 (default: 8)")
    parser.add_argument("--max-tokens", type=int, default=64, help="where a line does not say (default: 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="where a line does not say (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(argv)


def finished(path: Path) -> dict[int, bool]:
    """Lines that have their reply and whether it is good; a last line torn by a crash is cut off.
    Raises ValueError for a file that this program did not write, and leaves it as it is."""
    data = path.read_bytes() if path.is_file() else b""
    *whole, torn = data.split(b"\n")
    done: dict[int, bool] = {}
    try:
        for row in [json.loads(line) for line in whole if line.strip()]:
            done[int(row["line"])] = "error" not in row
        if not b'{"line": '.startswith(torn[:9]):
            raise ValueError("no line of ours begins so")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path} holds lines that batch.py did not write: choose another output") from None
    if torn:
        os.truncate(path, len(data) - len(torn))
    return done


def read(line: str) -> dict[str, Any]:
    """The object in a line. Raises ValueError where there is none."""
    try:
        job = json.loads(line, object_pairs_hook=lambda p: {int(k) if k.isdecimal() else k: v for k, v in p})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(job, dict):
        raise ValueError('a line must be a JSON object with "prompt"')
    return job


def run(model: tensorfold.Model, todo: Jobs, out: TextIO, slots: int, defaults: dict[str, Any], bar: Any) -> int:
    """Keeps the slots full, writes each reply as it ends; returns how many lines were bad."""
    open_slots: list[tuple[dict[str, Any], tensorfold.SlotHandle]] = []
    bad, tokens, begun, following = 0, 0, time.perf_counter(), next(todo, None)

    def write(row: dict[str, Any]) -> None:
        print(json.dumps(row, ensure_ascii=False), file=out, flush=True)
        bar.set_postfix_str(f"{tokens / (time.perf_counter() - begun):.1f} tokens/s", refresh=False)
        bar.update()

    while following or open_slots:
        while following and len(open_slots) < slots:
            (number, line), following = following, next(todo, None)
            row: dict[str, Any] = {"line": number}
            try:
                job = defaults | read(line)
                row |= {"id": job.pop("id")} if "id" in job else {}
                if "prompt" not in job:
                    raise ValueError('the line has no "prompt"')
                open_slots.append((row, model.open(job.pop("prompt"), **job)))
            except (ValueError, TypeError) as error:
                bad += 1
                bar.write(f"batch.py: line {number} skipped: {error}", file=sys.stderr)
                write(row | {"error": str(error)})
        model.step()
        for row, slot in [s for s in open_slots if s[1].done]:
            open_slots.remove((row, slot))
            slot.close()
            tokens += len(slot.tokens)
            row |= {"text": slot.text, "finish_reason": slot.finish_reason, "seed": slot.seed, "tokens": slot.tokens}
            bad += slot.error is not None
            write(row | ({"error": str(slot.error)} if slot.error else {}))
    return bad


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    if args.output.exists() and args.output.samefile(args.input):
        raise ValueError(f"{args.output} is the input too: choose another output")
    done = finished(args.output)
    with args.input.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        todo = [(number, line) for number, line in enumerate(file, 1) if line.strip() and number not in done]
    defaults = {"max_tokens": args.max_tokens, "temperature": args.temperature}
    model = tensorfold.Model.load(args.model, max_slots=args.slots)
    bar = tqdm(total=len(todo), unit="line", disable=args.quiet)
    with model, bar, args.output.open("a", encoding="utf-8", errors="backslashreplace") as out:  # as JSON's escapes
        bad = run(model, iter(todo), out, args.slots, defaults, bar)
    print(f"batch.py: {len(todo) - bad} lines done, {bad} bad, {len(done)} were there already", file=sys.stderr)
    return 0 if bad == 0 and all(done.values()) else 1


if __name__ == "__main__":
    sys.exit(console.run(main, interrupted="interrupted; run it again to go on"))
