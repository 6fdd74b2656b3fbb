"""What every benchmark shares: arguments, prompts, facts on platform and checkpoint, receipts; knows no measurement."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorfold import Generation, Model

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "examples" / "tiny-v41"
PROMPTS = Path(__file__).with_name("prompts.json")
DOMAINS = ("code", "prose", "chat")
REAL_HIDDEN, REAL_LAYERS = 5120, 40


def arguments(doc: str, model: Path | None = TINY) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    if model is not None:
        parser.add_argument("--model", type=Path, default=model, help="checkpoint folder")
        parser.add_argument("--device", choices=("cpu", "gpu"), help="default: this machine's own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the receipt here")
    parser.add_argument("--quick", action="store_true", help="a few tokens only: shows that it runs, measures nothing")
    return parser


def load(args: argparse.Namespace, **options: Any) -> Model:
    """The model of --model on --device; a GPU runs the kernels, a CPU plain operations."""
    import mlx.core as mx

    import tensorfold

    if args.device == "cpu":
        mx.set_default_device(mx.cpu)
    elif args.device == "gpu":
        options["backend"] = "metal" if mx.metal.is_available() else "cuda"
    return tensorfold.Model.load(args.model, **options)


def numbers(text: str) -> list[int]:
    """An argparse type: "1,2,4" -> [1, 2, 4]."""
    return [int(part) for part in text.split(",")]


def prompts(domains: Iterable[str] = DOMAINS, most: int | None = None, shortest: bool = False) -> dict[str, list[str]]:
    """Prompts by domain, without bos; chat prompts hold special tokens, so read them with parse_special=True."""
    data = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return {domain: (sorted(data[domain], key=len) if shortest else data[domain])[:most] for domain in domains}


def generate(model: Model, prompt: Any, **options: Any) -> Generation:
    """One reply to one prompt."""
    out = model.generate(prompt, **options)
    return out[0] if isinstance(out, list) else out


def long_ids(model: Model, count: int) -> list[int]:
    """`count` prompt ids: the prose prompts over and over, after bos."""
    ids: list[int] = []
    text = "\n".join(prompts(["prose"])["prose"])
    while len(ids) < count:
        ids += model.tokenizer.encode(text, add_bos=not ids)
    return ids[:count]


def joined_sha(shas: Sequence[str]) -> str:
    """One hash for a run: SHA-256 hex over the replies' token hashes in order."""
    return hashlib.sha256("".join(shas).encode("ascii")).hexdigest()


def rss() -> int:
    """Bytes of this process in memory now (its peak where the system does not tell)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_rss()


def peak_rss() -> int:
    """Most bytes that this process had in memory; Linux counts in KiB, macOS in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def platform_facts() -> dict[str, Any]:
    """The machine in general words."""
    import mlx.core as mx

    return {
        "os": platform.system(),
        "cpu": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "mlx": version("mlx"),
        "device": "gpu" if mx.default_device() == mx.gpu else "cpu",
    }


def checkpoint_facts(path: Path, random_weights: bool = False) -> dict[str, Any]:
    """Which kind of checkpoint a number belongs to."""
    from tensorfold.config import ModelConfig

    c = ModelConfig.from_folder(path)
    real = c.hidden_size >= REAL_HIDDEN
    label = ("full model" if c.num_hidden_layers >= REAL_LAYERS else "real layer") if real else "tiny"
    if not real and c.hidden_size > 1024:
        label = "mid"
    return {
        "label": label,
        "weights": "random" if random_weights else "as given",
        "hidden_size": c.hidden_size,
        "layers": c.num_hidden_layers,
        "experts": c.n_routed_experts,
    }


def receipt(checkpoint: dict[str, Any], counts: dict[str, Any], token_sha: str, **results: Any) -> dict[str, Any]:
    """What was run, where, on what, how many, and what came out."""
    words = ["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_shown, sys.argv[1:])]
    head = {"command": shlex.join(words), "platform": platform_facts(), "checkpoint": checkpoint}
    return {**head, "counts": counts, "token_sha": token_sha, **results}


def report(args: argparse.Namespace, *facts: Any, **results: Any) -> None:
    """Writes a receipt, if --json named a file."""
    result, file = receipt(*facts, **results), args.json
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"receipt: {file}")


def _shown(word: str) -> str:
    """An argument without folders of this machine."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
