"""Prompt and decode tokens a second and peak memory of this library and of mlx-lm, on the same ids, in turns.

Each measurement is a process of its own: load, a short warm-up, then one greedy reply, undrafted. Without --path a
random checkpoint of preset `mid` (hidden 2048, 4 layers, no Engram) is written to a temporary folder. The tiny one is
measured as well; mlx-lm refuses configs with Engram layers, and the receipt then says so in its words.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common

SIDES = ("tensorfold", "mlx-lm")
WARM_UP = (8, 3)  # prompt and reply tokens
RATIOS = ("prompt_tps", "decode_tps", "decode_tps_best", "decode_cpu_s_a_token", "peak_mlx_bytes", "peak_rss_bytes")


def ids_of(vocab: int, count: int, salt: int = 0) -> list[int]:
    """Bos, then ids spread over the vocabulary, special ids left out."""
    return [0] + [3 + (7919 * (i + 1) + 104729 * salt) % (vocab - 8) for i in range(count - 1)]


def timed(start: float, tokens: Iterable[int]) -> dict[str, Any]:
    """Times of the first and the last token, processor seconds between them (all threads), and the tokens."""
    out: list[int] = []
    first, cpu = start, 0.0
    for token in tokens:
        if not out:
            first, cpu = time.perf_counter(), time.process_time()
        out.append(int(token))
    last, cpu = time.perf_counter(), time.process_time() - cpu
    return {"first_s": first - start, "decode_s": last - first, "decode_cpu_s": cpu, "tokens": out}


def run_tensorfold(path: Path, prompt: int, count: int) -> dict[str, Any]:
    """This library, without drafts and without kept prefixes."""
    import tensorfold as tf
    from tensorfold.config import ModelConfig

    vocab = ModelConfig.from_folder(path).vocab_size
    with tf.Model.load(path, draft=False, max_slots=1, prefix_bytes=0, progress=False) as model:

        def reply(ids: list[int], count: int) -> dict[str, Any]:
            start = time.perf_counter()
            return timed(start, (t for piece in model.stream(ids, max_tokens=count) for t in piece.tokens))

        reply(ids_of(vocab, WARM_UP[0], 1), WARM_UP[1])
        return reply(ids_of(vocab, prompt), count)


def run_mlx_lm(path: Path, prompt: int, count: int) -> dict[str, Any]:
    """mlx-lm's own model and its own loop; needs no package but mlx-lm."""
    import mlx.core as mx

    if find_spec("mlx_lm") is None:
        return {"refused": "mlx-lm is not installed in this Python: install the bench extra, or see --mlx-lm-python"}
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_config, load_model

    config = load_config(path)
    vocab = config.get("text_config", config)["vocab_size"]
    try:
        model, _ = load_model(path)
    except ValueError as error:
        return {"refused": " ".join(str(error).split())}

    def reply(ids: list[int], count: int) -> dict[str, Any]:
        start = time.perf_counter()
        return timed(start, (t for t, _ in generate_step(mx.array(ids), model, max_tokens=count)))

    reply(ids_of(vocab, WARM_UP[0], 1), WARM_UP[1])
    return reply(ids_of(vocab, prompt), count)


def side(name: str, path: Path, prompt: int, count: int) -> None:
    """What a child process does; its last line is the result."""
    import mlx.core as mx

    result = {"tensorfold": run_tensorfold, "mlx-lm": run_mlx_lm}[name](path, prompt, count)
    result |= {"peak_mlx_bytes": mx.get_peak_memory(), "peak_rss_bytes": common.peak_rss()}
    print("\n" + json.dumps(result))


def child(python: str, name: str, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One measurement; raises RuntimeError with the child's words if it fails."""
    words = [python, __file__, "--side", name, "--path", str(path)]
    words += ["--prompt", str(args.prompt), "--tokens", str(args.tokens)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed on {path.name}:\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(path: Path, args: argparse.Namespace, random_weights: bool) -> dict[str, Any]:
    """Both sides in turns; medians and bests over repeats, and their ratios."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    for _ in range(args.repeats):
        for name in SIDES:
            if not (runs[name] and "refused" in runs[name][0]):
                runs[name].append(child(sys.executable if name == SIDES[0] else args.mlx_lm_python, name, path, args))
    out: dict[str, Any] = {"checkpoint": common.checkpoint_facts(path, random_weights)}
    for name in SIDES:
        out[name] = runs[name][0] if "refused" in runs[name][0] else medians(runs[name], args.prompt)
    if "refused" not in out["mlx-lm"]:
        ours, theirs = (out[name] for name in SIDES)
        out["ratio"] = {key: round(ours[key] / theirs[key], 3) for key in RATIOS}
        both = list(zip(*(runs[name][0]["tokens"] for name in SIDES)))
        out["equal_tokens_from_start"] = next((i for i, (a, b) in enumerate(both) if a != b), len(both))
    return out


def medians(runs: list[dict[str, Any]], prompt: int) -> dict[str, Any]:
    """Rates and peaks of one side; the best run and processor time say more than the median on a busy machine."""
    from tensorfold.engine.reply import token_sha

    prompt_tps = [prompt / r["first_s"] for r in runs]
    decode_tps = [(len(r["tokens"]) - 1) / max(r["decode_s"], 1e-9) for r in runs]
    return {
        "runs": len(runs),
        "prompt_tps": round(statistics.median(prompt_tps), 3),
        "decode_tps": round(statistics.median(decode_tps), 3),
        "decode_tps_best": round(max(decode_tps), 3),
        "decode_tps_each": [round(v, 3) for v in decode_tps],
        "decode_cpu_s_a_token": round(min(r["decode_cpu_s"] / max(len(r["tokens"]) - 1, 1) for r in runs), 4),
        "peak_mlx_bytes": int(statistics.median(r["peak_mlx_bytes"] for r in runs)),
        "peak_rss_bytes": int(statistics.median(r["peak_rss_bytes"] for r in runs)),
        "tokens": len(runs[0]["tokens"]),
        "token_sha": token_sha(runs[0]["tokens"]),
    }


def main() -> int:
    parser = common.arguments(__doc__, model=None)
    parser.add_argument("--path", type=Path, help="checkpoint folder to compare on, instead of the random mid one")
    parser.add_argument("--mlx-lm-python", default=sys.executable, help="the Python that has mlx-lm installed")
    parser.add_argument("--prompt", type=int, default=24, help="prompt tokens")
    parser.add_argument("--tokens", type=int, default=16, help="reply tokens")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        side(args.side, args.path, args.prompt, args.tokens)
        return 0
    if args.quick:
        args.prompt, args.tokens, args.repeats = 9, 4, 1
    from tensorfold.testing import synthetic

    with tempfile.TemporaryDirectory() as folder:
        path = args.path or Path(folder)
        if args.path is None:
            synthetic.write(folder, "tiny" if args.quick else "mid", engram=False)
        results = [compare(path, args, args.path is None)]
    results += [compare(common.TINY, args, False)]
    for r in results:
        for name in SIDES:
            got = r[name]
            rates = got.get("refused") or f"prompt {got['prompt_tps']}, decode {got['decode_tps']} tok/s"
            print(f"{r['checkpoint']['label']:5} {name:10} {rates}")
        if "ratio" in r:
            print(f"ratios, this library over mlx-lm: {r['ratio']}; first {r['equal_tokens_from_start']} tokens equal")
    counts = {"prompt_tokens": args.prompt, "reply_tokens": args.tokens, "repeats": args.repeats}
    sha = common.joined_sha([r[SIDES[0]]["token_sha"] for r in results])
    common.report(args, results[0]["checkpoint"], counts, sha, results=results, mlx_lm="0.32.2, its own deepseek_v41")
    return 0


if __name__ == "__main__":
    sys.exit(main())
