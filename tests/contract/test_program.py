"""Compiled objects are kept by what was compiled: not by where it stands, what is said about it, or whose checkout."""

from __future__ import annotations

import pytest

from tensorfold.proof.host import clang

TEXT = '#define A 1 \\\n  + 1\n#line 3 "k.metal"\nint f(int a,\n      int b) {\n  return a;\n}\n'


@pytest.mark.parametrize(
    "old, new",
    [('#line 3 "k.metal"', '#line 17 "other.metal"'), ("a,\n      int", "a, int"), ("{\n", "{\n\n\n"), ("  +", "+")],
)
def test_lines_and_blanks_make_no_other_object(old: str, new: str) -> None:
    changed = TEXT.replace(old, new)
    assert changed != TEXT and clang.fingerprint([changed]) == clang.fingerprint([TEXT])


@pytest.mark.parametrize("old, new", [("return a", "return b"), (" \\\n", "\n"), ("#line 3", "#define B\n#line 3")])
def test_other_words_or_directives_make_another(old: str, new: str) -> None:
    assert clang.fingerprint([TEXT.replace(old, new)]) != clang.fingerprint([TEXT])
    assert clang.fingerprint([TEXT, "-O1"]) != clang.fingerprint([TEXT, "-O2"])


def test_an_object_hangs_on_who_translates(monkeypatch: pytest.MonkeyPatch) -> None:
    before = clang.fingerprint([TEXT])
    monkeypatch.setattr(clang, "_makers", lambda: "another translator")
    assert clang.fingerprint([TEXT]) != before
