"""Type check of Metal source with its address spaces, on any machine with clang 19. Knows no kernel and runs nothing.

What it says is "clang accepts the translation and no rule below is broken"; Apple's own compiler has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorfold.proof.host import clang, tree_rules
from tensorfold.proof.host.translate import translate

_LINE_MARK = re.compile(r'\s*#\s*line\s+(\d+)(?:\s+"([^"]+)")?')
_QUOTED = re.compile(r'\s*#\s*include\s+"([^"]+)"')
_STANDARD = re.compile(r"(?m)^\s*#\s*include\s+<metal_\w+>.*$")


@dataclass(frozen=True)
class Finding:
    """One complaint."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: error: {self.message}"


def expand(source: str, path: str, folders: Sequence[str], seen: set[str] | None = None) -> str:
    """The source with quoted includes inlined and #line marks around them."""
    seen = set() if seen is None else seen
    out: list[str] = []
    for number, line in enumerate(source.split("\n"), 1):
        match = _QUOTED.match(line)
        if not match:
            out.append(line)
            continue
        candidates = [Path(folder) / match[1] for folder in (str(Path(path).parent), *folders)]
        found = next((c for c in candidates if c.exists()), None)
        if found is None:
            out.append(f"#error missing include {match[1]}")
            continue
        text = found.read_text()
        if str(found) in seen and "#pragma once" in text:
            out.append("")
            continue
        seen.add(str(found))
        out.append(f'#line 1 "{found}"\n{expand(text, str(found), folders, seen)}\n#line {number + 1} "{path}"')
    return "\n".join(out)


def origins(source: str, path: str) -> dict[int, tuple[str, int]]:
    """Where each line of the text stands by its #line marks."""
    found: dict[int, tuple[str, int]] = {}
    file, number = path, 0
    for absolute, line in enumerate(source.split("\n"), 1):
        if match := _LINE_MARK.match(line):
            file, number = match[2] or file, int(match[1]) - 1
            continue
        number += 1
        found[absolute] = (file, number)
    return found


def without_standard_includes(source: str) -> str:
    """<metal_...> includes removed: the library is included by the compiler's command line."""
    return _STANDARD.sub("", source)


def check(
    source: str, path: str = "kernel.metal", folders: Sequence[str] = (), tree: bool = True, defines: Iterable[str] = ()
) -> list[Finding]:
    """Everything wrong with a Metal source; an empty list where nothing is.

    `tree` also reads clang's syntax tree for pointers without address space, program-scope variables and recursion.
    Raises ClangMissing without clang 19, ClangFailed when clang fails without naming an error.
    """
    whole = without_standard_includes(f'#line 1 "{path}"\n' + expand(source, path, folders))
    where = origins(whole, path)
    translated = translate(whole)
    found = [Finding(*where.get(line, (path, line)), message) for line, message in translated.findings]
    flags = [f"-D{name}" for name in defines]
    messages, _ = clang.compile_metal(translated.text, flags, "-fsyntax-only")
    errors = [m for m in messages if m.level == "error"]
    found += [Finding(m.file, m.line, m.text) for m in errors]
    for m in messages:
        if m.level == "warning" and re.search(r"implicit conversion.*to '[^']*(?:bfloat|__bf16)", m.text):
            found.append(Finding(m.file, m.line, "no implicit conversion to bfloat in Metal: write bfloat(x)"))
    if tree and not errors:
        loose = {where[line] for line in translated.loose_lines if line in where}
        found += [Finding(f or path, n, m) for f, n, m in tree_rules.inspect(translated.text, flags, loose)]
    return found
