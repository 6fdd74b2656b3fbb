"""Dependencies run one way: which room of the package may import which, and no circles, of files or of rooms.

Imports that only types need count too: a name in a signature is knowledge.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "tensorfold"
BASE = {"arguments", "codes", "cone", "config", "keywords", "progress", "roles", "small"}  # files that know no room
# a room, and the rooms it may import beside those files
MAY_IMPORT: dict[str, set[str]] = {
    "kernels": set(),
    "text": set(),
    "checkpoint": set(),
    "backend": {"kernels"},
    "state": {"backend"},
    "network": {"backend", "checkpoint", "state"},
    "engine": {"backend", "network", "state", "text"},
    "proof": {"kernels"},
    "testing": {"checkpoint", "network", "text"},
    "receipt": {"backend", "checkpoint", "engine", "kernels", "network", "proof", "state", "text", "surface"},
    "surface": {"backend", "checkpoint", "engine", "kernels", "network", "state", "text"},
}
# one import that is made only when it is asked for: backend="host" is a proof tool, commands run what they name
LAZY = {("backend.choice", "proof"), ("cli", "receipt"), ("contract", "proof")}


def imports() -> dict[str, set[str]]:
    """Every module of the package with the modules of it that it imports, wherever in its text."""
    found: dict[str, set[str]] = defaultdict(set)
    files = {name_of(path): path for path in ROOT.rglob("*.py")}
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tensorfold":
                inside = node.module.removeprefix("tensorfold").lstrip(".")
                targets = [f"{inside}.{a.name}".lstrip(".") for a in node.names]
                found[module] |= {t if t in files else inside for t in targets} - {module, ""}
            elif isinstance(node, ast.Import):
                found[module] |= {a.name.removeprefix("tensorfold.") for a in node.names if "tensorfold." in a.name}
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """The folder of a module; what lies at the top is the base or the surface."""
    first = module.split(".")[0]
    if first.removesuffix("_rules").removesuffix("_keys").removesuffix("_fields") in BASE:
        return "base"
    return first if first and (ROOT / first).is_dir() else "surface"


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Nodes that reach themselves, each with what it reaches back."""
    reach: dict[str, set[str]] = {}
    for node in edges:
        seen, todo = set[str](), list(edges[node])
        while todo:
            following = todo.pop()
            if following not in seen:
                seen.add(following)
                todo += edges.get(following, ())
        reach[node] = seen
    return sorted({tuple(sorted(n for n in reach[a] if a in reach.get(n, ()))) for a in reach if a in reach[a]})  # type: ignore[arg-type, return-value]


def test_each_room_imports_what_it_may() -> None:
    wrong = []
    for module, targets in imports().items():
        own = room(module)
        for target in targets:
            other = room(target)
            allowed = other in {own, "base"} or other in MAY_IMPORT.get(own, set()) or (module, other) in LAZY
            if not allowed:
                wrong.append(f"{module} ({own}) imports {target} ({other})")
    assert not wrong, "\n".join(sorted(wrong))


def test_every_room_is_in_the_table_and_the_table_has_no_circle() -> None:
    rooms = {room(module) for module in imports()} - {"base"}
    assert rooms <= set(MAY_IMPORT)
    assert not circles(MAY_IMPORT)


def test_no_files_import_one_another_in_a_circle() -> None:
    assert not circles(imports())


def test_the_check_sees_a_circle_and_a_wrong_direction() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [("a", "b", "c")]
    assert room("kernels.embed.plan") == "kernels" and room("model") == "surface" and room("config_rules") == "base"
    assert "engine" not in MAY_IMPORT["network"] and "proof" not in MAY_IMPORT["surface"]
