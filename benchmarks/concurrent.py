"""Several prompts at once: tokens a second over 1, 2, 4 and 8 slots, and the proof that company changes no token.

--alone runs every prompt again in a model that was loaded for it, --serial again one after another in the model that
ran them together. Exit status 1 if a reply's token_sha differs from the concurrent one.
"""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tensorfold as tf
from benchmarks import common


def options(index: int, args: Any) -> dict[str, Any]:
    """Keywords of the prompt with this number; every prompt has a seed of its own."""
    sampled = {"temperature": args.temperature, "seed": args.seed + index}
    return {"max_tokens": args.tokens, "parse_special": True, "draft": not args.no_draft, **sampled}


def load(args: Any, slots: int) -> tf.Model:
    draft = False if args.no_draft else None
    return common.load(args, max_slots=slots, prefix_bytes=0, draft=draft, draft_policy=args.policy)


def together(model: tf.Model, texts: list[str], args: Any) -> dict[str, Any]:
    """All prompts at once; rates over the time from the first opening to the last token."""
    begun, cpu = time.perf_counter(), time.process_time()
    handles = [model.open(text, **options(i, args)) for i, text in enumerate(texts)]
    rounds = 1
    while model.step():
        rounds += 1
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    stats = [handle.stats for handle in handles]
    for handle in handles:
        if handle.error is not None:
            raise handle.error
        handle.close()
    tokens = sum(s.generated_tokens for s in stats)
    return {
        "slots": len(texts),
        "rounds": rounds,
        "tokens": tokens,
        "seconds": round(took, 3),
        "cpu_seconds": round(cpu, 3),
        "tokens_per_second": round(tokens / took, 2),
        "last_first_token_s": round(max(s.ttft_s or 0.0 for s in stats), 3),
        "token_shas": [s.token_sha for s in stats],
    }


def alone(texts: list[str], args: Any) -> list[str]:
    """Each prompt in a model that sees no other."""
    shas = []
    for i, text in enumerate(texts):
        with load(args, 1) as model:
            shas.append(common.generate(model, text, **options(i, args)).stats.token_sha)
    return shas


def serial(model: tf.Model, texts: list[str], args: Any) -> tuple[list[str], float, float]:
    """One after another, and the wall and processor time of all."""
    begun, cpu = time.perf_counter(), time.process_time()
    shas = [common.generate(model, text, **options(i, args)).stats.token_sha for i, text in enumerate(texts)]
    return shas, time.perf_counter() - begun, time.process_time() - cpu


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--slots", type=common.numbers, default=[1, 2, 4, 8], help="numbers of slots, up to 16")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a reply")
    parser.add_argument("--alone", action="store_true", help="run every prompt again alone and compare")
    parser.add_argument("--serial", action="store_true", help="run the prompts again one by one and compare")
    parser.add_argument("--no-draft", action="store_true", help="without drafts")
    parser.add_argument("--policy", choices=("measured", "fixed"), default="measured", help="how drafts are given")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first prompt, the next has the next")
    args = parser.parse_args()
    if args.quick:
        args.slots, args.tokens = [2], 6
    texts = list(chain(*zip(*common.prompts(shortest=args.quick).values())))[: max(args.slots)]  # domains by turns
    solo = alone(texts, args) if args.alone else None
    results, differ = [], []
    with load(args, max(args.slots)) as model:
        for count in args.slots:
            if not args.quick:
                together(model, texts[:count], args)  # kernels are compiled at their first use
            r = together(model, texts[:count], args)
            if args.serial:
                again, r["serial_seconds"], r["serial_cpu_seconds"] = serial(model, texts[:count], args)
                differ += [f"{count} slots, prompt {i}: serial" for i in range(count) if again[i] != r["token_shas"][i]]
            if solo:
                differ += [f"{count} slots, prompt {i}: alone" for i in range(count) if solo[i] != r["token_shas"][i]]
            results.append(r)
            words = [f"{count} slots: {r['tokens']} tokens in {r['rounds']} rounds, {r['tokens_per_second']} tok/s"]
            if args.serial:
                words.append(f"{r['serial_seconds'] / r['seconds']:.2f} times serial")
                words.append(f"{r['serial_cpu_seconds'] / r['cpu_seconds']:.2f} by processor time")
            print(", ".join(words), flush=True)
    for line in differ:
        print(f"DIFFERS {line}", file=sys.stderr)
    ran = [name for name, on in (("alone", args.alone), ("serial", args.serial)) if on]
    counts = {"prompts": len(texts), "tokens": args.tokens, "compared_with": ran, "differ": len(differ)}
    sha = common.joined_sha(results[-1]["token_shas"])
    common.report(args, common.checkpoint_facts(args.model), counts, sha, results=results, differ=differ)
    print(f"{len(differ)} replies differ from {' and '.join(ran)}" if ran else "nothing compared: --alone, --serial")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
