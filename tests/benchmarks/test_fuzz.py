"""Damaged headers, indexes and saves: 500 cases, and proof that the fuzzer sees a guard that is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fuzz
from tensorfold.checkpoint import headers, reader
from tensorfold.engine import save
from tensorfold.state.pages import Pages


def test_no_damage_crashes_hangs_or_passes_silently(tmp_path: Path) -> None:
    tally = fuzz.fuzz(fuzz.SHORT, seed=11, limit=20, scratch=tmp_path)
    assert tally.faults == []
    assert sum(tally.counts.values()) == fuzz.SHORT
    for kind in ("header", "index", "save", "resealed"):
        assert tally.counts[f"{kind}: refused"] > 60 and tally.counts[f"{kind}: accepted, unchanged"] > 0


def parsed(raw: bytes) -> list[Any]:
    pairs = json.loads(raw.decode(), object_pairs_hook=headers._Pairs)
    return [pair for pair in pairs if pair[0] != "__metadata__"]


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "tensors are not compared with the config": (reader, "check_tensors", lambda *_: None, "header"),
    "a header that is no JSON ends as it may": (headers, "_parse", lambda path, raw: parsed(raw), "header"),
    "a save has no checksum": (save, "_digest", lambda *_: "", "save"),
    "shapes of a save are not looked at": (save, "_check_whole", lambda *_: None, "resealed"),
    "a restored slot keeps the pages of a refusal": (Pages, "drop", lambda *_: None, "save"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_guard_that_is_gone_is_seen(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead, kind = PLANTED[what]
    monkeypatch.setattr(owner, name, instead)
    faults = fuzz.fuzz(240, seed=11, limit=20, scratch=tmp_path).faults
    assert any(fault.startswith(kind) for fault in faults)
