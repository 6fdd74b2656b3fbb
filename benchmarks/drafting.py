"""What drafts pay: acceptance by position and domain, rows and forwards a token, time and token_sha on and off.

Forwards a token leave out those that only read the prompt. Exit status 1 if any reply differs with drafts on, or if a
number is above what --most-forwards or --most-time allows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tensorfold as tf
from benchmarks import common


def reply(model: tf.Model, text: str, drafts: int, args: Any) -> tuple[tf.Generation, float, float]:
    """One reply, its wall time and its processor time over all threads, in seconds."""
    begun, cpu = time.perf_counter(), time.process_time()
    sampled = {"temperature": args.temperature, "seed": args.seed}
    options = {"max_tokens": args.tokens, "parse_special": True, **sampled}
    out = common.generate(model, text, draft=drafts > 0, max_drafts=drafts, **options)
    return out, time.perf_counter() - begun, time.process_time() - cpu


def group(model: tf.Model, texts: list[str], args: Any, chunk: int) -> dict[str, Any]:
    """One domain under one policy: off and on by turns, in changing order; the least time of each prompt counts."""
    total: dict[str, Any] = {"prompts": len(texts), "tokens": 0, "forwards": 0, "prompt_forwards": 0, "rows": 0}
    tried, right = [0] * args.max_drafts, [0] * args.max_drafts
    both, equal, shas = (0, args.max_drafts), 0, []
    seconds, cpu = dict.fromkeys(both, 0.0), dict.fromkeys(both, 0.0)
    for text in texts:
        times: dict[int, list[tuple[float, float]]] = {drafts: [] for drafts in both}
        outs: dict[int, tf.Generation] = {}
        for turn in range(args.repeats):
            for drafts in both[:: 1 if turn % 2 == 0 else -1]:
                outs[drafts], *took = reply(model, text, drafts, args)
                times[drafts].append((took[0], took[1]))
        on, off = outs[args.max_drafts].stats, outs[0].stats
        equal += on.token_sha == off.token_sha
        shas.append(off.token_sha)
        for drafts in both:
            seconds[drafts] += min(wall for wall, _ in times[drafts])
            cpu[drafts] += min(used for _, used in times[drafts])
        total["tokens"] += on.generated_tokens
        total["forwards"] += on.forwards
        total["prompt_forwards"] += -(-on.prompt_tokens // chunk)
        total["rows"] += on.generated_tokens - 1 + sum(on.drafted) - sum(on.accepted)
        tried = [a + b for a, b in zip(tried, on.drafted)]
        right = [a + b for a, b in zip(right, on.accepted)]
    per_token = (total["forwards"] - total["prompt_forwards"] + total["prompts"]) / total["tokens"]
    return {
        **total,
        "equal_on_off": equal,
        "drafted": tried,
        "accepted": right,
        "acceptance": [round(a / b, 3) if b else None for a, b in zip(right, tried)],
        "forwards_per_token": round(per_token, 3),
        "forwards_per_token_with_prompt": round(total["forwards"] / total["tokens"], 3),
        "rows_per_token": round(total["rows"] / total["tokens"], 3),
        "seconds_off": round(seconds[0], 3),
        "seconds_on": round(seconds[args.max_drafts], 3),
        "on_over_off": round(seconds[args.max_drafts] / seconds[0], 3),
        "cpu_on_over_off": round(cpu[args.max_drafts] / cpu[0], 3),
        "token_sha": common.joined_sha(shas),
    }


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--domains", nargs="+", choices=common.DOMAINS, default=list(common.DOMAINS))
    parser.add_argument("--policies", nargs="+", choices=("fixed", "measured"), default=["fixed", "measured"])
    parser.add_argument("--per-domain", type=int, default=10, help="prompts of each domain")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a reply")
    parser.add_argument("--max-drafts", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each reply, on and off; the faster counts")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-forwards", type=float, help="fail above so many forwards a token: code, fixed policy")
    parser.add_argument("--most-time", type=float, help="fail above so much time, on over off: measured policy")
    args = parser.parse_args()
    if args.quick:
        args.per_domain, args.tokens, args.repeats = 1, 6, 1
    from tensorfold.loading import PROMPT_CHUNK

    results: dict[str, dict[str, Any]] = {}
    failed = []
    for policy in args.policies:
        with common.load(args, draft=True, prefix_bytes=0, draft_policy=policy) as model:
            for drafts in (0, args.max_drafts):  # kernels are compiled at their first use
                reply(model, common.prompts(["code"])["code"][0], drafts, args)
            for domain, texts in common.prompts(args.domains, args.per_domain, args.quick).items():
                r = results.setdefault(policy, {})[domain] = group(model, texts, args, PROMPT_CHUNK)
                names = ("forwards_per_token", "rows_per_token", "acceptance", "on_over_off", "cpu_on_over_off")
                words = ", ".join(f"{name} {r[name]}" for name in names)
                print(f"{policy} {domain}: {words}, equal {r['equal_on_off']} of {r['prompts']}", flush=True)
                if r["equal_on_off"] != r["prompts"]:
                    failed.append(f"{policy} {domain}: a reply changed with drafts on")
                if args.most_time and policy == "measured" and r["on_over_off"] > args.most_time:
                    failed.append(f"{policy} {domain}: time on over off {r['on_over_off']} > {args.most_time}")
                fixed_code = policy == "fixed" and domain == "code"
                if args.most_forwards and fixed_code and r["forwards_per_token"] > args.most_forwards:
                    failed.append(f"fixed code: {r['forwards_per_token']} forwards a token > {args.most_forwards}")
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)
    counts = {name: getattr(args, name) for name in ("per_domain", "tokens", "max_drafts", "repeats")}
    sha = common.joined_sha([r["token_sha"] for by_domain in results.values() for r in by_domain.values()])
    common.report(args, common.checkpoint_facts(args.model), counts, sha, results=results, failed=failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
