"""Damages headers, indexes and saved states at random and opens them: refused with the one error, or nothing changed.

A mutant that is accepted must hold the very tensors, or the very state, of what it was made from. Bytes of weights are
left alone: the format has no checksum of them. Exit status 1 for another exception, a mutant that was accepted with
other contents, a case that took longer than --limit, or a page or slot that was lost; a crash ends the process.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path.pop(0)  # this folder, whose concurrent.py would hide a module of Python's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import safetensors.numpy

import tensorfold as tf
from benchmarks import common
from tensorfold.checkpoint import Checkpoint, CheckpointError
from tensorfold.checkpoint.layout import INDEX_FILE
from tensorfold.engine import save
from tensorfold.testing import synthetic

SMALL: dict[str, Any] = {"n_routed_experts": 2, "n_activated_experts": 1, "dspark_n_routed_experts": 2,
                         "dspark_n_activated_experts": 1, "vocab_size": 320, "dim": 64}  # fmt: skip
FULL, SHORT, QUICK = 10_000, 500, 60
JUNK = b'0123456789-.eE[]{}",:tfnu\\ \x00\x7f\x80\xff'
VALUES: list[Any] = [0, 1, -1, 7, 2**31, 2**63, 2**64, 10**40, 0.5, True, None, "", "x", [], [1], {}, "I8", [0, 0]]
EVIL = [b"", b"{}", b"[]", b"null", b"[" * 50_000, b'{"a":' * 50_000, b"\xff\xfe", b"9" * 10_000, b'{"a": NaN}']


@dataclass
class Tally:
    """What became of the cases, and what should not have."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def case(self, kind: str, seed: int, run: Callable[[], bool], refusals: tuple[type[Exception], ...]) -> None:
        """Runs one: `run` says whether what was accepted is what it was."""
        begun = time.perf_counter()
        try:
            right = run()
        except refusals:
            self.counts[f"{kind}: refused"] += 1
        except Exception as error:
            self.faults.append(f"{kind} {seed}: {type(error).__name__}: {error}"[:300])
        else:
            self.counts[f"{kind}: accepted, unchanged"] += right
            if not right:
                self.faults.append(f"{kind} {seed}: accepted with other contents")
        self.slowest = max(self.slowest, time.perf_counter() - begun)


def bytes_changed(rng: random.Random, data: bytes) -> bytes:
    """A few bytes replaced, put in or taken out; or the end cut off; or a part said twice."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, way = rng.randrange(len(out) + 1), rng.randrange(6)
        if way == 0:
            out[at : at + 1] = bytes([rng.choice(JUNK)])
        elif way == 1:
            out[at:at] = bytes([rng.choice(JUNK)])
        elif way == 2:
            del out[at : at + rng.choice((1, 1, 5, 100))]
        elif way == 3 and len(out) > at:
            out[at] ^= 1 << rng.randrange(8)
        elif way == 4:
            out[at:at] = out[at : at + rng.randrange(200)]
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def tree_of(text: bytes) -> Any:
    """The JSON, if there is some: it may have been damaged before."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, (dict, list)) else None


def sound(entry: Any) -> bool:
    """Whether a header's entry still has a dtype and a shape."""
    known = isinstance(entry, dict) and isinstance(entry.get("dtype"), str) and isinstance(entry.get("shape"), list)
    return known and all(type(n) is int for n in entry["shape"])


def json_changed(rng: random.Random, text: bytes) -> bytes:
    """One value, key or entry of a JSON object changed, so that it still parses; or something else altogether."""
    if rng.random() < 0.1:
        return rng.choice(EVIL)
    tree = tree_of(text)
    if not tree:
        return bytes_changed(rng, text)
    node: Any = tree
    key: Any = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
    while isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
        node = node[key]
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
    way = rng.randrange(5)
    if way == 0:
        del node[key]
    elif way == 1 and isinstance(node, dict):
        node[str(key) + rng.choice(("x", ".weight", "\0"))] = node[key]
    elif way == 2 and type(node[key]) is int:
        node[key] += rng.choice((-1, 1, 8, -8, 4096))
    elif way == 3 and isinstance(node, dict):
        node[rng.choice(list(node))] = node[key]
    else:
        node[key] = rng.choice(VALUES)
    return json.dumps(tree).encode()


def entry_changed(rng: random.Random, header: bytes) -> bytes:
    """A well-formed header that says something else of as many bytes: another dtype, shape or owner of a tensor."""
    tree = tree_of(header)
    names = [name for name, entry in tree.items() if sound(entry)] if isinstance(tree, dict) else []
    if not names:
        return bytes_changed(rng, header)
    name, other = rng.choice(names), rng.choice(names)
    entry, way = tree[name], rng.randrange(3)
    if way == 0:
        widths = ({"F8_E4M3", "I8", "F8_E8M0", "U8", "F8_E5M2", "BOOL"}, {"BF16", "F16", "I16"}, {"F32", "I32", "U32"})
        entry["dtype"] = rng.choice(sorted(next((w for w in widths if entry["dtype"] in w), {entry["dtype"]})))
    elif way == 1:
        entry["shape"] = rng.choice((entry["shape"][::-1], [1, *entry["shape"]], [2 * n for n in entry["shape"][:1]]))
    elif [tree[other][k] for k in ("dtype", "shape")] != [entry[k] for k in ("dtype", "shape")]:
        tree[name], tree[other] = tree[other], entry  # of equal ones nobody could tell
    return json.dumps(tree).encode()


def shard_changed(rng: random.Random, data: bytes) -> bytes:
    """A shard with another header, another length of it, or another end; never with other bytes of weights."""
    size = int.from_bytes(data[:8], "little")
    header, payload, way = data[8 : 8 + size], data[8 + size :], rng.randrange(8)
    if way == 0:
        return data[: rng.randrange(len(data))]
    if way == 1:
        return data + bytes(rng.choice((1, 8, 4096)))
    if way == 2:
        other = rng.choice((0, 1, size - 1, size + 1, size + 8, 10**8 + 1, 2**63, 2**64 - 1, rng.randrange(2 * size)))
        return other.to_bytes(8, "little") + header + payload
    changed = (entry_changed, json_changed, json_changed, bytes_changed, bytes_changed)[way - 3](rng, header)
    return len(changed).to_bytes(8, "little") + changed + payload


class Folder:
    """A small checkpoint, and copies of it with one or two files replaced."""

    def __init__(self, scratch: Path):
        self.good, self.bad = scratch / "good", scratch / "bad"
        synthetic.write(self.good, "tiny", seed=1, **SMALL)
        self.shards = sorted(p.name for p in self.good.glob("*.safetensors"))
        self.digest = contents(self.good)

    def case(self, rng: random.Random, kind: str) -> bool:
        """Damages and opens; True if the tensors are those of the original."""
        shutil.rmtree(self.bad, ignore_errors=True)
        shutil.copytree(self.good, self.bad, copy_function=os.link)
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = INDEX_FILE if kind == "index" else rng.choice(self.shards)
            data = (self.bad / name).read_bytes()
            if kind == "index":
                changed = (json_changed if rng.random() < 0.6 else bytes_changed)(rng, data)
            elif rng.random() < 0.05:
                changed = (self.good / rng.choice(self.shards)).read_bytes()
            else:
                changed = shard_changed(rng, data)
            (self.bad / name).unlink()
            if rng.random() < 0.02:
                break  # absent altogether
            (self.bad / name).write_bytes(changed)
        if kind == "header" and rng.random() < 0.3:
            (self.bad / INDEX_FILE).unlink()
        return contents(self.bad) == self.digest


def contents(folder: Path) -> str:
    """One hash over every tensor that the folder gives."""
    digest = hashlib.sha256()
    with Checkpoint.open(folder) as checkpoint:
        for name in checkpoint.names:
            raw = checkpoint.raw(name)
            digest.update(f"{name} {raw.dtype} {raw.shape};".encode())
            digest.update(raw)
    return digest.hexdigest()


class Saves:
    """Saved states of a model, finished and not, and what becomes of damaged ones."""

    def __init__(self, model: tf.Model, scratch: Path):
        self.model, self.path, self.again = model, scratch / "mutant", scratch / "again"
        self.files: list[bytes] = []
        for tokens, options in ((3, {}), (4, {"temperature": 0.9, "seed": 5, "logprobs": 2, "stop": ["zz"]})):
            handle = model.open(list(range(3, 24 + tokens)), max_tokens=tokens, logit_bias={1: -50.0}, **options)
            while not handle.done:
                model.step()
                handle.save(self.path)
                self.files.append(self.path.read_bytes())
            handle.close()
        self.pages = self.free()

    def free(self) -> int:
        engine = self.model._engine
        return engine.memory.pages.count - engine.memory.pages.free

    def case(self, rng: random.Random, kind: str) -> bool:
        """Damages and restores; True if what came back is saved as the original was."""
        good = rng.choice(self.files)
        data = resealed(rng, good) if kind == "resealed" else damaged(rng, good)
        self.path.write_bytes(data)
        try:
            with self.model.restore(self.path) as handle:
                handle.save(self.again)
                back = self.again.read_bytes()
                if kind == "resealed":
                    self.finish(handle)
        finally:
            if self.free() != self.pages or self.model._engine.slots:
                raise RuntimeError("a page or a slot was lost")
        return same_state(back, data) if kind == "resealed" else back == good

    def finish(self, handle: tf.SlotHandle) -> None:
        """What was accepted must run."""
        for _ in range(3):
            if not handle.done:
                self.model.step()


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a save says, and its arrays."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"][save._KEY]), safetensors.numpy.load(data)


def same_state(a: bytes, b: bytes) -> bool:
    """Equal but for how a number is spelt."""
    (about, arrays), (other, others) = parts(a), parts(b)
    equal = arrays.keys() == others.keys() and all(np.array_equal(arrays[k], others[k]) for k in arrays)
    return equal and {**about, "sha256": ""} == {**other, "sha256": ""}


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Anything may change here: a save has a checksum."""
    if rng.random() < 0.4:
        return shard_changed(rng, data)
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def resealed(rng: random.Random, data: bytes) -> bytes:
    """A number, a list or an array of a saved state changed, and its checksum made good again: what a bug, and no bad
    disk, might write. Accepted ones must at least be saved again as they are, and run."""
    about, arrays = parts(data)
    seal = about.pop("sha256")
    if rng.random() < 0.5:
        text = json_changed(rng, json.dumps(about).encode())
        try:
            about = json.loads(text)
        except (ValueError, RecursionError):
            return safetensors.numpy.save(arrays, {save._KEY: text.decode("latin-1")})
    else:
        name = rng.choice(list(arrays))
        array, way = arrays[name], rng.randrange(6)
        if way == 0:
            del arrays[name]
        elif way == 1:
            arrays[name] = array[: len(array) // 2]
        elif way == 2:
            arrays[name] = array.astype(rng.choice((np.float32, np.int64, np.uint8, np.int32)))
        elif way == 3:
            arrays[name + "x"] = array
        elif way == 4:
            arrays[name] = array.reshape(-1)
        else:
            arrays[name] = np.concatenate([array, array]) if array.ndim else array
    if isinstance(about, dict):
        about["sha256"] = save._digest(about, arrays) if rng.random() < 0.95 else seal
    return safetensors.numpy.save(arrays, {save._KEY: json.dumps(about, sort_keys=True)})


def fuzz(cases: int, seed: int, limit: float, scratch: Path) -> Tally:
    """Runs `cases` cases, half of them on checkpoints and half on saves."""
    tally, folder = Tally(), Folder(scratch)
    with tf.Model.load(folder.good, prefix_bytes=0, max_slots=2) as model:
        saves = Saves(model, scratch)
        kinds: list[tuple[str, Any, tuple[type[Exception], ...]]] = [
            ("header", folder, (CheckpointError,)), ("index", folder, (CheckpointError,)),
            ("save", saves, (tf.SaveError,)), ("resealed", saves, (tf.SaveError, tf.CapacityError)),
        ]  # fmt: skip
        for i in range(cases):
            kind, subject, refusals = kinds[i % len(kinds)]
            rng = random.Random(f"{seed} {kind} {i}")
            faulthandler.dump_traceback_later(60 * limit, exit=True)  # a case that hangs ends the run, and says where
            tally.case(kind, i, lambda: subject.case(rng, kind), refusals)  # noqa: B023
            faulthandler.cancel_dump_traceback_later()
    if tally.slowest > limit:
        tally.faults.append(f"a case took {tally.slowest:.1f} s")
    return tally


def main() -> int:
    parser = common.arguments(__doc__, model=None)
    parser.add_argument("--full", action="store_true", help=f"{FULL} cases")
    parser.add_argument("--cases", type=int, help=f"so many, by default {SHORT}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=10, help="most seconds of a case")
    args = parser.parse_args()
    cases = args.cases or (FULL if args.full else QUICK if args.quick else SHORT)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        tally = fuzz(cases, args.seed, args.limit, Path(scratch))
        facts = common.checkpoint_facts(Path(scratch) / "good", random_weights=True)
    for line in (*(f"{n:6}  {what}" for what, n in sorted(tally.counts.items())), *tally.faults[:20]):
        print(line)
    took = time.perf_counter() - begun
    print(f"{cases} cases, {len(tally.faults)} faults, slowest {tally.slowest:.2f} s, {took:.0f} s")
    counts = {"cases": cases, "faults": len(tally.faults), **tally.counts}
    common.report(args, facts, counts, "", faults=tally.faults, slowest_s=tally.slowest)
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
