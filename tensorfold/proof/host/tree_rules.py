"""Rules that need clang's syntax tree: address spaces left out, program-scope variables, recursion. Knows no tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tensorfold.proof.host import clang

Node = dict[str, Any]
Place = tuple[str, int]
_FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXConversionDecl", "CXXDestructorDecl"}
_SPACE = "tf_user"


def inspect(text: str, flags: Sequence[str], loose: set[Place]) -> list[tuple[str, int, str]]:
    """(file, line, message) of every rule broken; `loose` are places of `const thread T&`, generic by design."""
    wrapped = f"namespace {_SPACE} {{\n{text}\n}}\n"
    tree = ("-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang", f"-ast-dump-filter={_SPACE}")
    messages, dump = clang.compile_metal(wrapped, flags, *tree)
    if errors := [m for m in messages if m.level == "error"]:
        raise clang.ClangFailed(f"the tree of an accepted source could not be read: {errors[0]}")
    visitor = _Visitor(loose)
    for root in _roots(dump):
        visitor.visit(root, None, False)
    return visitor.found + visitor.recursion()


def _roots(dump: str) -> Iterator[Node]:
    decoder = json.JSONDecoder()
    position = dump.find("{")
    while position >= 0:
        node, end = decoder.raw_decode(dump, position)
        yield node
        position = dump.find("{", end)


class _Visitor:
    def __init__(self, loose: set[Place]):
        self.loose = loose
        self.found: list[tuple[str, int, str]] = []
        self.calls: dict[str, set[str]] = {}
        self.names: dict[str, str] = {}
        self.file, self.line = "", 0

    def locate(self, node: Node) -> Place:
        """clang writes file and line only where they change, so the last ones are carried along."""
        for where in (node.get("loc"), (node.get("range") or {}).get("begin")):
            for part in ((where or {}).get("spellingLoc"), (where or {}).get("expansionLoc"), where):
                if part:
                    self.file = part.get("presumedFile", part.get("file", self.file))
                    self.line = part.get("presumedLine", part.get("line", self.line))
        return self.file, self.line

    def visit(self, node: Node, function: str | None, implicit: bool) -> None:
        place, kind = self.locate(node), node.get("kind", "")
        implicit = implicit or bool(node.get("isImplicit"))
        if kind in _FUNCTIONS:
            function = node["id"]
            self.names[function] = node.get("name", "?")
        if not implicit:
            self.variable(node, kind, place, function)
        if function:
            referenced = node.get("referencedDecl", {})
            if kind == "DeclRefExpr" and referenced.get("kind") in ("FunctionDecl", "CXXMethodDecl"):
                self.calls.setdefault(function, set()).add(referenced["id"])
            if kind == "MemberExpr" and "referencedMemberDecl" in node:
                self.calls.setdefault(function, set()).add(node["referencedMemberDecl"])
        for inner in node.get("inner", ()):
            if inner:
                self.visit(inner, function, implicit)

    def variable(self, node: Node, kind: str, place: Place, function: str | None) -> None:
        if kind not in ("VarDecl", "ParmVarDecl", "FieldDecl"):
            return
        declared, name = node.get("type", {}).get("qualType", ""), node.get("name", "")
        by_inference = re.search(r"\bauto\b", declared) or "*__generic &" in declared
        if "__generic" in declared and place not in self.loose and not by_inference:
            what = "reference" if "&" in declared else "pointer"
            self.found.append((*place, f"{what} type must have explicit address space qualifier ({name}: {declared})"))
        if (
            kind == "VarDecl"
            and (function is None or node.get("storageClass") == "static")
            and "constant" not in declared
        ):
            self.found.append(
                (*place, f"program scope variable must reside in constant address space ({name}: {declared})")
            )

    def recursion(self) -> list[tuple[str, int, str]]:
        """Functions that reach themselves."""
        found, state = [], {}

        def walk(caller: str) -> None:
            state[caller] = "open"
            for callee in self.calls.get(caller, ()):
                if state.get(callee) == "open":
                    found.append(("", 0, f"recursion through function '{self.names.get(callee, '?')}'"))
                elif callee not in state:
                    walk(callee)
            state[caller] = "done"

        for function in list(self.calls):
            if function not in state:
                walk(function)
        return found
