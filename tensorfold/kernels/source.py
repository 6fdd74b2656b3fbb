"""Text of kernels: reading .metal files, choosing a backend's branches, keeping only what is used. Knows no compiler.

MLX hashes the whole source at every launch, so what it gets is stripped: no comments, no branches of other backends,
and of the prelude only the definitions that the kernel reaches. `#line` marks keep compilers' messages at the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_DIRECTIVE = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)")
_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
_WORD = re.compile(r"[A-Za-z_]\w*")


class SourceError(ValueError):
    """A kernel's text breaks a rule of the portable subset."""


@dataclass(frozen=True)
class Line:
    """One line of text and where it stands."""

    text: str
    file: str
    number: int


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel as its .metal file declares it."""

    name: str
    type: str
    attribute: str | None


@dataclass(frozen=True)
class KernelText:
    """A .metal file taken apart: helpers before the kernel, its template and parameters, its body."""

    file: str
    helpers: tuple[Line, ...]
    template: tuple[tuple[str, str], ...]
    parameters: tuple[Parameter, ...]
    body: tuple[Line, ...]


def read_lines(path: Path, overrides: Mapping[str, str] | None = None) -> list[Line]:
    """The lines of a file, quoted includes expanded once each, from its own folder or from this one.

    `overrides` gives the text of files by name, in place of what is on disk.
    """
    return list(_expand(path, overrides or {}, set()))


def _expand(path: Path, overrides: Mapping[str, str], seen: set[str]) -> Iterable[Line]:
    if path.name in seen:
        return
    seen.add(path.name)
    text = overrides[path.name] if path.name in overrides else path.read_text("ascii")
    for number, line in enumerate(text.split("\n"), 1):
        if found := _INCLUDE.match(line):
            near = path.parent / found[1]
            yield from _expand(near if near.exists() else HERE / found[1], overrides, seen)
        elif line.strip() != "#pragma once":
            yield Line(line, path.name, number)


def included_files(path: Path) -> tuple[Path, ...]:
    """The file itself and every file it includes, each once."""
    found: dict[Path, None] = {path: None}
    for line in path.read_text("ascii").split("\n"):
        if match := _INCLUDE.match(line):
            near = path.parent / match[1]
            for inner in included_files(near if near.exists() else HERE / match[1]):
                found[inner] = None
    return tuple(found)


def without_comments(lines: Sequence[Line]) -> list[Line]:
    """Comments and trailing blanks removed, lines kept in place."""
    text = "\n".join(line.text for line in lines)
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return [Line(t.rstrip(), line.file, line.number) for t, line in zip(text.split("\n"), lines)]


def resolve(lines: Sequence[Line], defined: Mapping[str, bool]) -> list[Line]:
    """Branches of #if that depend only on whether the given macros are defined; other conditions stay as they are."""
    kept: list[Line] = []
    stack: list[list[bool | None]] = []
    for line in lines:
        live = all(state[1] is not False for state in stack)
        match = _DIRECTIVE.match(line.text)
        if not match:
            if live:
                kept.append(line)
            continue
        word, rest = match[1], match[2].strip()
        if word in ("if", "ifdef", "ifndef"):
            value = _decide(word, rest, defined)
            stack.append([value, value])
            known = value is not None
        else:
            known = stack[-1][0] is not None
            if word == "endif":
                stack.pop()
                live = all(state[1] is not False for state in stack)
            elif known:
                if word == "elif":
                    raise SourceError(
                        f"{line.file}:{line.number}: #elif after a backend condition: nest an #if in #else"
                    )
                stack[-1][1] = not stack[-1][0]
        if live and not known:
            kept.append(line)
    return kept


def _decide(word: str, rest: str, defined: Mapping[str, bool]) -> bool | None:
    match = (
        re.fullmatch(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?", rest) if word == "if" else re.fullmatch(r"()(\w+)", rest)
    )
    if not match or match[2] not in defined:
        return None
    return defined[match[2]] != (match[1] == "!" or word == "ifndef")


def reachable(lines: Sequence[Line], roots: Iterable[str]) -> list[Line]:
    """Of top-level definitions those that `roots` and the unnamed lines reach; directives and the like stay."""
    items = _split_items(lines)
    wanted = set(roots)
    for names, item in items:
        if not names:
            wanted |= _words(item)
    used: set[int] = set()
    grew = True
    while grew:
        grew = False
        for index, (names, item) in enumerate(items):
            if index not in used and (not names or names & wanted):
                used.add(index)
                wanted |= _words(item)
                grew = True
    return [line for index, (_, item) in enumerate(items) if index in used for line in item if line.text]


def _words(lines: Iterable[Line]) -> set[str]:
    return {word for line in lines for word in _WORD.findall(line.text)}


def _split_items(lines: Sequence[Line]) -> list[tuple[set[str], list[Line]]]:
    """Top-level items with the portable names they define (none: the item always stays)."""
    items: list[tuple[set[str], list[Line]]] = []
    current: list[Line] = []
    depth = 0
    for line in lines:
        if not line.text.strip():
            continue
        current.append(line)
        directive = current[0].text.lstrip().startswith("#")
        if directive:
            if line.text.endswith("\\"):
                continue
        else:
            depth += line.text.count("{") - line.text.count("}")
            if depth > 0 or not line.text.rstrip().endswith((";", "}")):
                continue
        items.append((_defines(current), current))
        current, depth = [], 0
    if current:
        items.append((set(), current))
    return items


def _defines(item: Sequence[Line]) -> set[str]:
    text = item[0].text
    if match := re.match(r"\s*#\s*define\s+(\w+)", text):
        return {match[1]}
    if text.lstrip().startswith("#"):
        return set()
    whole = " ".join(line.text for line in item)
    if match := re.match(r"(?:template\s*<[^>]*>\s*)?P_FN\s+[\w\s]*?\b(\w+)\s*\(", whole):
        return {match[1]}
    return set()


def render(lines: Sequence[Line]) -> str:
    """Text with a #line mark wherever a file or a line number jumps; indentation and blank lines dropped."""
    out: list[str] = []
    expected: tuple[str, int] | None = None
    for line in lines:
        text = line.text.strip()
        if not text:
            continue
        here = (line.file, line.number)
        gap = line.number - expected[1] if expected and expected[0] == line.file else -1
        if 0 <= gap <= 3:
            out.extend([""] * gap)
        else:
            out.append(f'#line {line.number} "{line.file}"')
        out.append(text)
        expected = (here[0], here[1] + 1)
    return "\n".join(out) + "\n"


def parse(path: Path, overrides: Mapping[str, str] | None = None) -> KernelText:
    """A .metal file: helpers, then one `[[kernel]] void name(...) { ... }` that ends the file.

    Raises SourceError naming file and line where the text does not have that form.
    """
    lines = without_comments(read_lines(path, overrides))
    if bad := next((line for line in lines if not line.text.isascii()), None):
        raise SourceError(f"{bad.file}:{bad.number}: kernel sources are ASCII")
    start = next((i for i, line in enumerate(lines) if "[[kernel]]" in line.text), None)
    if start is None:
        raise SourceError(f"{path.name}: no [[kernel]] function")
    head = _template(lines, start)
    text = "\n".join(line.text for line in lines[head:])
    match = re.match(r"\s*(?:template\s*<([^>]*)>\s*)?\[\[kernel\]\]\s*void\s+(\w+)\s*\(", text)
    if not match:
        raise SourceError(f"{path.name}:{lines[start].number}: write `[[kernel]] void name(` on the line of [[kernel]]")
    if match[2] != path.stem:
        raise SourceError(f"{path.name}:{lines[start].number}: the kernel is named {match[2]}, its file {path.stem}")
    close = _matching(text, match.end() - 1, "()")
    opening = text.index("{", close)
    ending = _matching(text, opening, "{}")
    if text[ending + 1 :].strip():
        raise SourceError(f"{path.name}: text after the kernel function")
    first = head + text.count("\n", 0, opening)
    count = text.count("\n", opening, ending) + 1
    body_text = text[opening + 1 : ending].split("\n")
    body = tuple(Line(t, lines[first + i].file, lines[first + i].number) for i, t in enumerate(body_text[:count]))
    template = tuple((p.split()[-1], p.split()[0]) for p in (match[1] or "").split(",") if p.strip())
    parameters = tuple(_parameter(p, path.name) for p in text[match.end() : close].split(",") if p.strip())
    return KernelText(path.name, tuple(lines[:head]), template, parameters, body)


def _template(lines: Sequence[Line], start: int) -> int:
    """The line where the template before line `start` begins, or `start` where there is none."""
    for head in range(start - 1, -1, -1):
        text = lines[head].text
        if text.lstrip().startswith("template"):
            return head
        if text.rstrip().endswith((";", "}")):
            break
    return start


def _matching(text: str, start: int, pair: str) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == pair[0]) - (text[position] == pair[1])
        if depth == 0:
            return position
    raise SourceError(f"unbalanced {pair} in a kernel's text")


def _parameter(text: str, file: str) -> Parameter:
    match = re.fullmatch(r"\s*(.+?)\s*([A-Za-z_]\w*)\s*(?:\[\[(\w+)\]\])?\s*", text, re.S)
    if not match:
        raise SourceError(f"{file}: cannot read the parameter `{text.strip()}`")
    return Parameter(match[2], " ".join(match[1].split()), match[3])


def backend_text(text: KernelText, metal: bool) -> tuple[str, str]:
    """(header, body) as handed to MLX: this backend's branches, only what is reached, no comments."""
    defined = {"__METAL_VERSION__": metal}
    body = resolve(text.body, defined)
    header = reachable(resolve(text.helpers, defined), _words(body))
    return render(header), render(body)
