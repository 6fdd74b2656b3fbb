"""Opens the published layout, all 48 shards of 510 GB: names, shapes, dtypes and lengths checked, no weight read.

Without --model the layout is written first, with holes for payloads. A fresh process opens it; its time and the memory
that is its own are printed. Exit status 1 over --seconds or --private-mb.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common, make_full_size

OPEN = """
import json, sys, time
import tensorfold
from tensorfold.checkpoint import Checkpoint
from tensorfold.memory import private_bytes
before, begun = private_bytes(), time.perf_counter()
checkpoint = Checkpoint.open(sys.argv[1])
seconds, opened = time.perf_counter() - begun, private_bytes()
begun = time.perf_counter()
about = tensorfold.describe(sys.argv[1])
print(json.dumps({"tensors": len(checkpoint), "seconds": seconds, "describe_seconds": time.perf_counter() - begun,
                  "imports_bytes": before, "private_bytes": opened,
                  "checkpoint_bytes": about.resident_bytes + about.disk_bytes}))
"""


def over(seconds: float, private: int | None, most_seconds: float, most_mb: float) -> bool:
    """Whether a bound was passed; memory that the system does not tell passes none."""
    return seconds > most_seconds or (private or 0) > most_mb * 1e6


def main() -> int:
    parser = common.arguments(__doc__, model=None)
    parser.add_argument("--model", type=Path, help="a folder that make_full_size.py wrote, or the real one")
    parser.add_argument("--seconds", type=float, default=10, help="most that opening may take")
    parser.add_argument("--private-mb", type=float, default=1000, help="most memory of its own")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.model or Path(scratch)
        if args.model is None:
            make_full_size.write(folder)
        words = [sys.executable, "-c", OPEN, str(folder)]
        done = subprocess.run(words, cwd=common.ROOT, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        found = json.loads(done.stdout)
        facts = common.checkpoint_facts(folder)
    private = found["private_bytes"] or 0
    print(
        f"opened {found['tensors']} tensors, {found['checkpoint_bytes'] / 1e9:.1f} GB, in {found['seconds']:.2f} s; "
        f"described in {found['describe_seconds']:.2f} s; private memory {private / 1e6:.0f} MB, "
        f"{(found['imports_bytes'] or 0) / 1e6:.0f} MB of it before"
    )
    facts["weights"] = "holes" if args.model is None else "as given"
    common.report(args, facts, {"tensors": found["tensors"]}, "", **found)
    return int(over(found["seconds"], found["private_bytes"], args.seconds, args.private_mb))


if __name__ == "__main__":
    sys.exit(main())
