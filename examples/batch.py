"""Runs a file of prompts: python examples/batch.py in.jsonl out.jsonl. Started again, it goes on where it stopped."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

import tensorfold

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


def finished(path: Path) -> set[int]:
    """Numbers of the lines that have their reply; a last line torn by a crash is cut off."""
    if not path.exists():
        return set()
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return {json.loads(line)["line"] for line in whole.splitlines() if line.strip()}


def jobs(path: Path, done: set[int]) -> Jobs:
    """Number and text of each line that is still to do."""
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        yield from ((n, line) for n, line in enumerate(file, 1) if line.strip() and n not in done)


def begin(model: tensorfold.Model, line: str, defaults: dict[str, Any]) -> tuple[Any, tensorfold.SlotHandle]:
    """An open slot for a line. Raises ValueError or TypeError saying what is wrong with it."""
    try:
        job = json.loads(line, object_pairs_hook=lambda p: {int(k) if k.isdecimal() else k: v for k, v in p})
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(job, dict) or "prompt" not in job:
        raise ValueError('a line must be a JSON object with "prompt"')
    options = defaults | {k: v for k, v in job.items() if k not in ("prompt", "id")}
    return job.get("id"), model.open(job["prompt"], **options)


def run(model: tensorfold.Model, todo: Jobs, out: TextIO, slots: int, defaults: dict[str, Any], bar: Any) -> int:
    """Keeps the slots full, writes each reply as it ends; returns how many lines were bad."""
    open_slots: list[tuple[int, Any, tensorfold.SlotHandle]] = []
    bad, tokens, begun, more = 0, 0, time.perf_counter(), True

    def write(row: dict[str, Any]) -> None:
        print(json.dumps(row, ensure_ascii=False), file=out, flush=True)
        bar.set_postfix_str(f"{tokens / (time.perf_counter() - begun):.1f} tokens/s", refresh=False)
        bar.update()

    while more or open_slots:
        while more and len(open_slots) < slots:
            number, line = next(todo, (0, ""))
            more = number > 0
            try:
                if more:
                    open_slots.append((number, *begin(model, line, defaults)))
            except (ValueError, TypeError) as error:
                bad += 1
                bar.write(f"batch.py: line {number} skipped: {error}", file=sys.stderr)
                write({"line": number, "error": str(error)})
        model.step()
        for number, name, slot in [s for s in open_slots if s[2].done]:
            open_slots.remove((number, name, slot))
            slot.close()
            tokens += len(slot.tokens)
            row = {"line": number, "text": slot.text, "finish_reason": slot.finish_reason, "seed": slot.seed}
            more_of_it = {"id": name, "error": str(slot.error) if slot.error else None}
            write(row | {"tokens": slot.tokens} | {k: v for k, v in more_of_it.items() if v is not None})
    return bad


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    try:
        done = finished(args.output)
        total = sum(1 for _ in jobs(args.input, done))
        defaults = {"max_tokens": args.max_tokens, "temperature": args.temperature}
        model = tensorfold.Model.load(args.model, max_slots=args.slots)
        bar = tqdm(total=total, unit="line", disable=args.quiet)
        with model, bar, args.output.open("a", encoding="utf-8") as out:
            bad = run(model, jobs(args.input, done), out, args.slots, defaults, bar)
    except (ValueError, TypeError, OSError) as error:
        print(f"batch.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("batch.py: interrupted; run it again to go on", file=sys.stderr)
        return 130
    print(f"batch.py: {total - bad} lines done, {bad} bad, {len(done)} were there already", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
