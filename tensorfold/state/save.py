"""Saved slots: exactly the rows that a later token can read, in one safetensors file; knows no model arithmetic."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tensorfold.engine.params import SamplingParams
from tensorfold.engine.slot import Slot, TokenLogprobs
from tensorfold.state.caches import PAGE_TOKENS, Caches
from tensorfold.state.snapshot import Snapshot, page_count

if TYPE_CHECKING:
    from tensorfold.engine.engine import Engine

FORMAT = 1
_KEY = "tensorfold"


class SaveError(ValueError):
    """A saved state that cannot be used here: another checkpoint, another format, a damaged or truncated file."""


def readable(caches: Caches, slot: Slot) -> dict[str, np.ndarray]:
    """Every cache row of `slot` that a later token can read, by position; equal states give equal arrays."""
    n, width = slot.committed, caches.config.sliding_window
    ring = slot.place * width + np.arange(max(0, n - width), n) % width
    out = {"ids": np.asarray(slot.ids, np.int32)}
    out["window"] = (
        np.stack([np.array(cache[mx.array(ring)]) for cache in caches.window]) if n else np.zeros((0,), np.uint8)
    )
    for source, ratio in caches.sources.items():
        rows, per_page = np.arange(n // ratio), PAGE_TOKENS // ratio
        places = np.asarray(slot.pages, np.int64)[rows // per_page] * per_page + rows % per_page if len(rows) else rows
        for name, pool in (("rows", caches.rows), ("keys", caches.keys)):
            out[f"{name}.{source}"] = np.array(pool[source][mx.array(places.astype(np.int32))])
        if n % ratio:
            out[f"pair.{source}"] = np.array(caches.pairs[source][mx.array([slot.place])])[0]
    return out


def save(path: Path, engine: Engine, slot: Slot, identity: str) -> None:
    """Writes the slot to `path`, whole or not at all. Raises OSError when the disk refuses, ValueError if it failed.

    What decides no later token is left out, so that equal states give equal files: drafts, times, a greedy slot's seed.
    """
    if slot.error is not None:
        raise ValueError(f"a failed slot cannot be saved: {slot.error}")
    arrays = readable(engine.lanes.caches, slot)
    params = slot.params if slot.params.temperature else replace(slot.params, seed=0)
    about = {
        "format": FORMAT,
        "checkpoint": identity,
        "config": hashlib.sha256(repr(engine.lanes.config).encode()).hexdigest(),
        "committed": slot.committed,
        "reply_start": slot.reply_start,
        "finish_reason": slot.finish_reason,
        "stages": engine.lanes.caches.stages,
        "params": asdict(params),
        "logprobs": [(t.logprob, t.top) for t in slot.logprobs],
    }
    about["sha256"] = _digest(about, arrays)
    data = safetensors.numpy.save(arrays, {_KEY: json.dumps(about, sort_keys=True)})
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def restore(path: Path, engine: Engine, identity: str, max_drafts: int) -> Slot:
    """A slot continued from `path`. Raises SaveError, CapacityError, or OSError when the file cannot be read."""
    about, arrays = _read(path)
    lanes = engine.lanes
    if about.get("format") != FORMAT:
        raise SaveError(f"{path}: format {about.get('format')!r}, this version reads {FORMAT}")
    if about.get("stages") != lanes.caches.stages:
        how = "without its drafter: load with draft=False" if lanes.caches.stages else "with its drafter: load with it"
        raise SaveError(f"{path} was saved by a model loaded {how}, or begin again from the prompt")
    if about.get("checkpoint") != identity:
        raise SaveError(
            f"{path} was saved with another checkpoint ({str(about.get('checkpoint'))[:12]}..., "
            f"here {identity[:12]}...)"
        )
    if about.pop("sha256", None) != _digest(about, arrays):
        raise SaveError(f"{path}: its contents do not match their checksum: the file was altered")
    try:
        params = about["params"]
        for name in ("logit_bias", "stop"):
            params[name] = tuple(tuple(v) if isinstance(v, list) else v for v in params[name])
        ids = [int(i) for i in arrays["ids"]]
        slot = Slot(-1, ids, SamplingParams(**params), engine.tokenizer, max_drafts)
        slot.resume(about["reply_start"], about["finish_reason"])
        for token, (value, top) in zip(slot.tokens, about["logprobs"]):
            slot.logprobs.append(TokenLogprobs(token, value, tuple((i, v) for i, v in top)))
        engine.check(ids[: slot.reply_start], slot.params)
        state = _state(lanes.caches, arrays, ids[: about["committed"]], engine)
    except (KeyError, TypeError, IndexError) as error:
        raise SaveError(f"{path}: not a whole saved state ({error!r})") from None
    try:
        engine.adopt(slot, state)
    finally:
        lanes.pages.drop(state.pages)
    return slot


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    data = path.read_bytes()
    try:
        arrays = safetensors.numpy.load(data)
        size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_KEY])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise SaveError(f"{path}: truncated, or not a saved TensorFold state ({error})") from None
    if not isinstance(about, dict):
        raise SaveError(f"{path}: not a saved TensorFold state")
    return about, arrays


def _state(caches: Caches, arrays: dict[str, np.ndarray], ids: list[int], engine: Engine) -> Snapshot:
    """A snapshot whose pages are filled from the file."""
    n, width = len(ids), caches.config.sliding_window
    ring = np.arange(max(0, n - width), n) % width
    window = []
    for layer, cache in enumerate(caches.window):
        rows = np.zeros((width, cache.shape[1]), np.uint8)
        if n:
            rows[ring] = arrays["window"][layer]
        window.append(mx.array(rows))
    pairs = {
        s: mx.array(arrays.get(f"pair.{s}", np.zeros((2, caches.config.head_dim), np.float32))) for s in caches.pairs
    }
    pages = []
    for _ in range(page_count(n)):
        engine.lanes.need_page()
        pages.append(engine.lanes.pages.take())
    for source, ratio in caches.sources.items():
        row, per_page = np.arange(n // ratio), PAGE_TOKENS // ratio
        if len(row):
            places = mx.array((np.asarray(pages)[row // per_page] * per_page + row % per_page).astype(np.int32))
            for name, pool in (("rows", caches.rows), ("keys", caches.keys)):
                pool[source][places] = mx.array(arrays[f"{name}.{source}"])
    mx.eval(caches.arrays())
    return Snapshot(np.asarray(ids, np.int32), window, pairs, pages)


def _digest(about: dict, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
