"""Time to the first token: cold, for a suffix behind a kept beginning, and cold with all layers over all rows; all must
give the same reply.

For each length a model is loaded anew, so nothing can be kept from before; --require-cold fails unless its statistics
say so. Exit status 1 as well if a reply differs. cpu_s is processor time over all threads, until the reply's end.
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


def reply(model: tf.Model, ids: list[int], args: Any) -> dict[str, Any]:
    """First-token time and what it was made of."""
    begun = time.process_time()
    s = common.generate(model, ids, max_tokens=args.tokens, draft=False).stats
    return {
        "cpu_s": round(time.process_time() - begun, 3),
        "prompt_tokens": s.prompt_tokens,
        "reused_tokens": s.reused_tokens,
        "ttft_s": round(s.ttft_s or 0.0, 4),
        "prompt_tps": round(s.prompt_tps or 0.0, 1),
        "token_sha": s.token_sha,
    }


def load(args: Any, cone: bool = True) -> tf.Model:
    """A model with warm kernels and nothing kept of the prompts: the warm-up's ids begin unlike them."""
    model = common.load(args, max_slots=1, draft=False)
    if not cone:
        model._engine.lanes.schedule.cone = None
    for more in ([], [6] * args.suffix):
        model.generate([5] * 70 + more, max_tokens=2)
    return model


def measure(length: int, args: Any) -> dict[str, Any]:
    """Cold prefix, then prefix and suffix from what was kept, then both cold, with the cone and without."""
    with load(args) as model:
        ids = common.long_ids(model, length + args.suffix)
        prefix = reply(model, ids[:length], args)
        kept = reply(model, ids, args)
    with load(args) as model:
        cold = reply(model, ids, args)
    with load(args, cone=False) as model:
        all_layers = reply(model, ids, args)
    found = {"cold_prefix": prefix, "kept": kept, "cold": cold, "all_layers": all_layers}
    return {"prefix": length, "suffix": args.suffix, **found}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--lengths", type=common.numbers, default=[64, 256, 1024], help="prefix lengths in tokens")
    parser.add_argument("--suffix", type=int, default=32, help="tokens behind the kept prefix")
    parser.add_argument("--tokens", type=int, default=8, help="tokens of a reply")
    parser.add_argument("--require-cold", action="store_true", help="fail unless the cold runs reused nothing")
    args = parser.parse_args()
    if args.quick:
        args.lengths, args.suffix, args.tokens = [40], 8, 3
    results, failed = [], []
    for length in args.lengths:
        r = measure(length, args)
        results.append(r)
        kept, cold, whole = r["kept"], r["cold"], r["all_layers"]
        r["kept_over_cold"] = round(kept["ttft_s"] / max(cold["ttft_s"], 1e-9), 3)
        print(f"{length} + {args.suffix} tokens: cold {cold['ttft_s']} s ({cold['prompt_tps']} tok/s), "
              f"behind {kept['reused_tokens']} kept {kept['ttft_s']} s, ratio {r['kept_over_cold']}; "
              f"all layers {whole['ttft_s']} s; cpu {cold['cpu_s']} and {whole['cpu_s']} s")  # fmt: skip
        for name, other in (("behind a kept prefix", kept), ("of all layers over all rows", whole)):
            if other["token_sha"] != cold["token_sha"]:
                failed.append(f"length {length}: the reply {name} differs from the cold one")
        reused = [r[name]["reused_tokens"] for name in ("cold_prefix", "cold", "all_layers")]
        if args.require_cold and any(reused):
            failed.append(f"length {length}: cold runs reused {reused} tokens")
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)
    counts = {"lengths": args.lengths, "suffix": args.suffix, "tokens": args.tokens}
    sha = common.joined_sha([r["cold"]["token_sha"] for r in results])
    common.report(args, common.checkpoint_facts(args.model), counts, sha, results=results, failed=failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
