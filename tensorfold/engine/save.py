"""Saved slots: exactly the rows that a later token can read, in one safetensors file; knows no model arithmetic."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tensorfold.engine.params import SamplingParams, parse
from tensorfold.engine.reply import TokenLogprobs
from tensorfold.engine.slot import Slot
from tensorfold.state import files
from tensorfold.state.caches import Caches
from tensorfold.state.slot_memory import readable

if TYPE_CHECKING:
    from tensorfold.config import ModelConfig
    from tensorfold.engine.engine import Engine

FORMAT = 1
_KEY = "tensorfold"
_FIELDS = {
    "format", "checkpoint", "config", "committed", "reply_start", "finish_reason", "stages", "params", "logprobs",
}  # fmt: skip
_FIRST_CHOICES = {
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "logit_bias", "stop", "seed",
    "logprobs",
}  # fmt: skip


class SaveError(ValueError):
    """A saved state that cannot be used here: another checkpoint, another format, a damaged or truncated file."""


@dataclass(frozen=True)
class Saved:
    """What a file holds: how the slot stands, with a checksum of all, and its rows."""

    about: dict[str, Any]
    arrays: dict[str, np.ndarray]


def take(engine: Engine, slot: Slot, identity: str) -> Saved:
    """The slot as `write` writes it. Raises ValueError if it failed. It touches no file.

    What decides no later token is left out, so that equal states give equal files: drafts, times, a greedy slot's seed.
    """
    if slot.error is not None:
        raise ValueError(f"a failed slot cannot be saved: {slot.error}")
    params = slot.params if slot.params.temperature else replace(slot.params, seed=0)
    about: dict[str, Any] = {
        "format": FORMAT,
        "checkpoint": identity,
        "config": _config_digest(engine),
        "committed": slot.committed,
        "reply_start": slot.reply_start,
        "finish_reason": slot.finish_reason,
        "stages": engine.memory.caches.stages,
        "params": _written(params),
        "logprobs": [(t.logprob, t.top) for t in slot.logprobs],
    }
    if params.prompt_logprobs is not None:
        about["prompt"] = {"first": slot.first_scored, "logprobs": [(t.logprob, t.top) for t in slot.scores]}
    if slot.whole_at > slot.committed:
        about["whole_at"] = slot.whole_at
    return Saved(about, readable(engine.memory.caches, slot))


def write(path: Path, saved: Saved) -> None:
    """Writes to `path`, whole or not at all. Raises OSError when the disk refuses. It needs no engine, so a slow disk
    holds up nobody else."""
    about = {**saved.about, "sha256": _digest(saved.about, saved.arrays)}
    data = safetensors.numpy.save(saved.arrays, {_KEY: json.dumps(about, sort_keys=True)})
    files.write(path, data)


def read(path: Path, identity: str, stages: int) -> Saved:
    """What `write` wrote for the checkpoint `identity`, loaded with so many drafter stages, its checksum verified.
    It needs no engine. Raises SaveError, or OSError when the file cannot be read."""
    about, arrays = _read(path)
    if about.get("format") != FORMAT:
        raise SaveError(f"{path}: format {about.get('format')!r}, this version reads {FORMAT}")
    if about.get("stages") != stages:
        how = "without its drafter: load with draft=False" if stages else "with its drafter: load with it"
        raise SaveError(f"{path} was saved by a model loaded {how}, or begin again from the prompt")
    if about.get("checkpoint") != identity:
        raise SaveError(
            f"{path} was saved with another checkpoint ({str(about.get('checkpoint'))[:12]}..., "
            f"here {identity[:12]}...)"
        )
    if about.pop("sha256", None) != _digest(about, arrays):
        raise SaveError(f"{path}: its contents do not match their checksum: the file was altered")
    return Saved(about, arrays)


def restore(path: Path, saved: Saved, engine: Engine, max_drafts: int) -> Slot:
    """A slot continued from what `read` gave for `path`. Raises SaveError or CapacityError. It touches no file."""
    about, arrays = saved.about, saved.arrays
    try:
        slot = _slot(about, arrays, engine, max_drafts)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError, AttributeError) as error:
        raise SaveError(f"{path}: not a whole saved state ({error!r})") from None
    engine.check(slot.ids[: slot.reply_start], slot.params)
    state = engine.memory.load(arrays, slot.ids[: about["committed"]], about.get("whole_at", 0))
    try:
        engine.adopt(slot, state)
    finally:
        engine.memory.drop(state)
    return slot


def _config_digest(engine: Engine) -> str:
    return hashlib.sha256(repr(engine.lanes.config).encode()).hexdigest()


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    data = files.read(path)
    try:
        arrays = safetensors.numpy.load(data)
        size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_KEY])
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise SaveError(f"{path}: truncated, or not a saved TensorFold state ({error})") from None
    if not isinstance(about, dict):
        raise SaveError(f"{path}: not a saved TensorFold state")
    return about, arrays


def _slot(about: dict, arrays: dict[str, np.ndarray], engine: Engine, max_drafts: int) -> Slot:
    """The slot as the host knows it, without place and pages; an error of any kind where something does not fit."""
    config, start, prompt = engine.lanes.config, about["reply_start"], about.get("prompt")
    if about.keys() - {"prompt", "whole_at"} != _FIELDS or about["config"] != _config_digest(engine):
        raise ValueError("fields are missing, unknown or of another config")
    _check_whole(about, arrays, engine.memory.caches)
    params = _params(about["params"], config)
    slot = Slot([int(i) for i in arrays["ids"]], params, engine.tokenizer, max_drafts)
    tokens = slot.ids[start:]
    logprobs = _logprobs(about["logprobs"], tokens, 0 if params.logprobs is None else len(tokens))
    slot.resume(start, about["finish_reason"], logprobs)
    slot.score(0, [])
    if (prompt is None) != (params.prompt_logprobs is None):
        raise ValueError(f"prompt_logprobs is {params.prompt_logprobs!r}, but the prompt's are {prompt!r}")
    if prompt is not None:
        first = prompt["first"]
        if prompt.keys() != {"first", "logprobs"} or type(first) is not int or not 0 <= first < start:
            raise ValueError(f"the prompt's log-probabilities begin at {first!r}")
        slot.score(first, slot.ids[first + 1 : start])
        known = min(max(0, about["committed"] - first), len(slot.targets))
        slot.scores += _logprobs(prompt["logprobs"], slot.targets, known)
    return slot


def _logprobs(saved: Any, tokens: list[int], count: int) -> list[TokenLogprobs]:
    """The saved log-probabilities of the first `count` tokens; ValueError where they are no such."""
    if type(saved) is not list or len(saved) != count:
        raise ValueError(f"{saved!r} are not {count} log-probabilities")
    found = []
    for token, (value, top) in zip(tokens, saved):
        if any(type(i) is not int or type(v) is not float for i, v in [*top, (token, value)]):
            raise ValueError(f"{[value, top]!r} are not log-probabilities by token")
        found.append(TokenLogprobs(token, value, tuple((i, v) for i, v in top)))
    return found


def _written(params: SamplingParams) -> dict[str, Any]:
    """The choices of a file. Those that came after the format are left out where nobody asked for them, so that files
    from before are read, and equal states go on giving equal files."""
    default = SamplingParams()
    return {k: v for k, v in asdict(params).items() if k in _FIRST_CHOICES or v != getattr(default, k)}


def _params(saved: dict, config: ModelConfig) -> SamplingParams:
    """The saved choices, held to what a caller may ask; ValueError where they are not in their one normal form."""
    asked = SamplingParams(**{name: _tuples(value) for name, value in saved.items()})
    params = parse(asked.keywords(), config.vocab_size, config.eos_token_ids)
    told = json.dumps(_written(params), sort_keys=True) == json.dumps(saved, sort_keys=True)
    if not told or (params.seed and not params.temperature):
        raise ValueError(f"sampling choices {saved!r} are not what this version writes")
    return params


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _check_whole(about: dict, arrays: dict[str, np.ndarray], caches: Caches) -> None:
    """Raises ValueError unless every array is there in its shape, and counts and ids are in range."""
    ids, n, start = arrays["ids"], about["committed"], about["reply_start"]
    vocab = caches.config.vocab_size
    if ids.dtype != np.int32 or ids.ndim != 1 or (len(ids) and not 0 <= ids.min() <= ids.max() < vocab):
        raise ValueError("ids are not token ids of this model")
    if type(n) is not int or type(start) is not int or not (0 <= n <= len(ids) and 0 < start <= len(ids)):
        raise ValueError(f"committed {n!r} and reply_start {start!r} do not fit {len(ids)} ids")
    if "whole_at" in about and not (type(about["whole_at"]) is int and n < about["whole_at"] <= len(ids)):
        raise ValueError(f"whole_at {about['whole_at']!r} does not fit {n} committed of {len(ids)} ids")
    if about["finish_reason"] not in (None, "stop", "length", "cancelled"):
        raise ValueError(f"finish_reason is {about['finish_reason']!r}")
    rings = (len(caches.window), min(n, caches.config.sliding_window), caches.window[0].shape[1])
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {"ids": (np.int32, ids.shape)}
    expected["window"] = (np.uint8, rings if n else (0,))
    for source, ratio in caches.sources.items():
        for name, pool in (("rows", caches.rows), ("keys", caches.keys)):
            expected[f"{name}.{source}"] = (np.uint8, (n // ratio, pool[source].shape[1]))
        if n % ratio:
            expected[f"pair.{source}"] = (np.float32, caches.pairs[source].shape[1:])
    found = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if found != expected:
        names = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
        raise ValueError(f"arrays {', '.join(names[:4])} are not those of {n} committed tokens")


def _digest(about: dict, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
