"""What the pages say is there: anchors and cases that code cites, files, names and commands that pages give."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_layers import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tensorfold", "tests", "benchmarks", "examples", "docs")
PAGES = [
    *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md",
    ROOT / "tensorfold" / "proof" / "README.md",
]  # fmt: skip
each_page = pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What GitHub makes of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads)


def sources() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS[:4]:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".metal", ".h", ".cpp") and path != Path(__file__):
                yield path, text_of(path)


def named(page: Path) -> list[str]:
    """Words of a page's code, inline and in blocks, which paths and commands are made of."""
    spans = re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", text_of(page), re.DOTALL)
    return [block or inline for block, inline in spans]


def test_what_code_cites_is_in_the_pages() -> None:
    cited = [
        (path, ROOT / page, anchor)
        for path, text in sources()
        for page, anchor in re.findall(r"(docs/\w+\.md)(?:#([a-z][\w-]*))?", text)
    ]
    assert len(cited) > 50
    wrong = [
        f"{path.relative_to(ROOT)} cites {page.relative_to(ROOT)}#{anchor}"
        for path, page, anchor in cited
        if not page.is_file() or (anchor and anchor not in anchors(page))
    ]
    assert wrong == []


def test_code_cites_no_page_that_is_elsewhere() -> None:
    """A section by its number belongs to a paper that a reader of this tree does not have."""
    found = [str(p) for p, text in sources() if re.search(r"\bsections? \d|'s (chat )?specification", text)]
    assert found == []


def test_cases_that_tests_cite_are_listed() -> None:
    rows = re.findall(r"^\| ([\d, to]+) \| [^|]+ \| [^|]+ \|$", text_of(ROOT / "docs" / "laws.md"), re.MULTILINE)
    listed = {n for row in rows for part in row.split(",") for n in numbers(part)}
    cited = {
        (path.name, int(n))
        for path, text in sources()
        for phrase in re.findall(r"\b[Cc]ases? (\d+(?:(?:, | and |, case | to )\d+)*)", text)
        for n in re.findall(r"\d+", phrase)
    }
    assert len(cited) > 40
    assert sorted((name, n) for name, n in cited if n not in listed) == []


def numbers(part: str) -> range:
    first, _, last = part.partition(" to ")
    return range(int(first), int(last or first) + 1)


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if not target.startswith(("http:", "https:")):
            path, _, anchor = target.partition("#")
            there = page if not path else page.parent / path
            if not there.exists() or (anchor and anchor not in anchors(there)):
                wrong.append(target)
    assert wrong == []


@each_page
def test_files_and_names_in_them_are_there(page: Path) -> None:
    """`folder/file`, `folder/file::name`, and test files by their name alone; capitals stand for any name."""
    wrong = []
    for word in (word for code in named(page) for word in code.split()):
        path, _, name = word.rstrip(",.;:").partition("::")
        found: list[Path] = []
        if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*", path) and not re.search(r"\b[A-Z]{4,}\b", path):
            found = sorted(ROOT.glob(path.rstrip("/")))
        elif re.fullmatch(r"test_\w+\.py", path):
            found = sorted((ROOT / "tests").rglob(path))
        else:
            continue
        if not found or (name and not re.search(rf"^\s*(?:def |class )?{name}\b", text_of(found[0]), re.MULTILINE)):
            wrong.append(word)
    assert wrong == []


@each_page
def test_pieces_of_files_are_as_in_the_files(page: Path) -> None:
    """A block of code behind a line that names a file of the package."""
    pieces = re.findall(r"^([^\n]*`tensorfold/[^\n]*)\n```(?:python|c\+\+)\n(.*?)```", text_of(page), re.M | re.S)
    wrong = []
    for line, piece in pieces:
        path = re.findall(r"`(tensorfold/[\w./]+)`", line)[-1]
        if piece not in text_of(ROOT / path):
            wrong.append(path)
    assert wrong == [] and (pieces or page.name != "kernels.md")


def test_pictures_name_files_that_are_there() -> None:
    named = [name for p in (ROOT / "docs").glob("*.svg") for name in re.findall(r"\w+/\w+\.py", text_of(p))]
    assert len(named) > 5 and [name for name in named if not (ROOT / "tensorfold" / name).is_file()] == []


def test_the_table_of_rooms_is_the_one_that_is_held() -> None:
    section = text_of(ROOT / "docs" / "architecture.md").split("\n## Rooms\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)/?` \| [^|]+ \| ?([^|]*)\|$", section, re.MULTILINE)
    told = {room: set(re.findall(r"`(\w+)`", may)) - {"basics"} for room, may in rows if room != "basics"}
    every = {"surface": "all of the above", "receipt": "everything above"}
    assert told.keys() == MAY_IMPORT.keys()
    assert [room for room in told if room not in every and told[room] != MAY_IMPORT[room]] == []
    assert all(dict(rows)[room].strip() == words for room, words in every.items())


def test_what_was_run_counts_as_the_receipt_does() -> None:
    """Kernels whose bits on CUDA, as the receipt has them, are those that the host stores now."""
    stored = json.loads((ROOT / "tensorfold" / "proof" / "contract" / "digests.json").read_text())
    receipt = json.loads((ROOT / "benchmarks" / "receipts" / "contract_cuda.json").read_text())["kernels"]
    equal = [k for k in receipt if stored.get(k["kernel"], "") == k.get("digest") and k["passed"] and not k["missed"]]
    said = re.findall(r"(\d+) of (\d+) kernels", text_of(ROOT / "docs" / "what_was_run.md"))
    assert said == [(str(len(equal)), str(len(stored)))]


@each_page
def test_commands_are_there(page: Path) -> None:
    """`python -m module`, `python script` and `script --option`, with every option that they give."""
    wrong = []
    for command in (c for code in named(page) for c in re.split(r"\n|&&|#|;", code)):
        said = re.search(r"python3? (?:-m (tensorfold[\w.]*|pytest)|(\w+/\w+\.py))(.*)|^(\w+\.py)( --.*)", command)
        if said is None or "NAME.py" in command:
            continue
        module, script, rest, alone, options = said.groups()
        text = module_text(module) if module else script_text(script or f"benchmarks/{alone}")
        asked = re.findall(r"(?<!\S)--[a-z][\w-]*", rest or options or "")
        if not text or any(f'"{option}"' not in text for option in asked):
            wrong.append(command.strip())
    assert wrong == []


def module_text(module: str) -> str:
    """What reads the options of a module that runs."""
    if module == "pytest":
        return text_of(ROOT / "tests" / "conftest.py")
    own = importlib.util.find_spec(module)
    parts = [own.origin] if own is not None and own.origin is not None else []
    runs = module if parts and not parts[0].endswith("__init__.py") else f"{module}.__main__"
    return "".join(text_of(p) for p in imported(Path(str(importlib.util.find_spec(runs).origin)))) if parts else ""


def script_text(script: str) -> str:
    return "".join(text_of(p) for p in imported(ROOT / script)) if (ROOT / script).is_file() else ""


def imported(script: Path) -> list[Path]:
    """A script, and what it imports of this tree."""
    lines = re.findall(r"^(?:from|import) ([\w.]+)(?: import (\w+))?", text_of(script), re.MULTILINE)
    names = [*(name for name, _ in lines), *(f"{name}.{part}" for name, part in lines if part)]
    files = [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return [script, *(p for p in files if p.is_file())]
