"""The checker reports what Metal rejects, at the right line, and never takes its own failure for a pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from planted import GOOD, PLANTED, STRICTER, Planted, source

from tensorfold.proof.host import clang
from tensorfold.proof.host.check import check
from tests.support.hostkit import needs_clang

pytestmark = needs_clang


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.name)
def test_planted_mistake(planted: Planted) -> None:
    found = check(source(planted), "k.metal")
    assert bool(found) == (planted.rejected or planted.name in STRICTER), found


def test_there_are_55() -> None:
    assert len(PLANTED) == 55 and len({p.name for p in PLANTED}) == 55


@pytest.mark.parametrize(
    "name", ["undeclared identifier", "double variable", "pointer parameter without address space"]
)
def test_line_of_a_finding(name: str) -> None:
    planted = next(p for p in PLANTED if p.name == name)
    text = source(planted)
    wanted = 1 + text[: text.index((planted.header + planted.body).split(";")[0])].count("\n")
    if planted.header:
        wanted = 1 + text[: text.index(planted.header)].count("\n")
    assert [f.line for f in check(text, "k.metal")] == [wanted]


def test_line_marks_name_the_file() -> None:
    text = GOOD.replace("@HDR@", "").replace("  @BODY@", '#line 70 "other.metal"\n  y[0] = zz;')
    assert [(f.file, f.line) for f in check(text, "k.metal")] == [("other.metal", 70)]


def test_a_failing_compiler_is_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clang, "LANGUAGE", (*clang.LANGUAGE, "-fno-such-flag"))
    with pytest.raises(clang.ClangFailed):
        check(GOOD.replace("@HDR@", "").replace("@BODY@", ""), "k.metal")


def test_a_crashing_compiler_is_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.CompletedProcess[str]([], 139, "", "")
    monkeypatch.setattr(clang, "run", lambda arguments, text=None: dead)
    with pytest.raises(clang.ClangFailed):
        check("", "k.metal")


def test_quoted_includes_are_checked_in_their_own_lines(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("#pragma once\ninline float part(float a) {\n  return a + missing;\n}\n")
    text = '#include <metal_stdlib>\nusing namespace metal;\n#include "part.h"\n#include "part.h"\n'
    found = check(text, str(tmp_path / "k.metal"))
    assert [(Path(f.file).name, f.line) for f in found] == [("part.h", 3)]


def test_cuda_branches_are_not_read() -> None:
    header = "#if defined(__METAL_VERSION__)\n#define SHARED threadgroup\n#else\n__shared__ double x;\n#endif\n"
    assert (
        check(GOOD.replace("@HDR@", header).replace("@BODY@", "SHARED float t[4]; t[0] = a; y[1] = t[0];"), "k.metal")
        == []
    )
