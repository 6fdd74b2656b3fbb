"""Metal source into C++ for OpenCL, token by token, line for line. Knows neither clang nor how the result is run.

Address spaces become clang's, attributes are checked and removed, threadgroup arrays become references into the
emulator's arena, vector constructors become checked ones. What clang would accept and Metal would not is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tensorfold.proof.host import shared_memory
from tensorfold.proof.host.branches import metal_branches
from tensorfold.proof.host.rules import ATTRIBUTES, OPENCL_WORDS, VECTORS, complaint
from tensorfold.proof.host.tokens import Stream, tokenize

_FLOAT = re.compile(
    r"(?:\d[\d']*\.[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?|\d[\d']*[eE][+-]?\d+|0[xX][\da-fA-F.']+[pP][+-]?\d+"
)
_BFLOAT = re.compile(r"[\d.]+(?:[eE][+-]?\d+)?(?:bf|BF)")
_BODIES = ("function", "kernel", "block")
_ENDS_TYPE = ("{", ":", ";", "=")


@dataclass
class Translation:
    """The translated text, (line, message) findings, and the lines that hold `const thread T&` references."""

    text: str
    findings: list[tuple[int, str]]
    loose_lines: set[int]


@dataclass
class _Scope:
    kinds: list[str] = field(default_factory=list)
    parens: list[int] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    paren: int = 0
    opened_at: int = -1

    @property
    def in_body(self) -> bool:
        return any(kind in _BODIES for kind in self.kinds)


def translate(source: str, first_key: int = 1) -> Translation:
    """Translate one Metal source (quoted includes already expanded)."""
    return _Translator(metal_branches(source), first_key).run()


class _Translator:
    def __init__(self, source: str, first_key: int):
        self.s = Stream(tokenize(source))
        self.scope = _Scope()
        self.findings: list[tuple[int, str]] = []
        self.loose: set[int] = set()
        self.key = first_key
        self.buffers: dict[str, int] = {}
        self.skip_to = -1
        self.structs = {self.s.after(i) for i in self.s.order if self.s.text(i) in ("struct", "class")}

    def run(self) -> Translation:
        for i in self.s.order:
            if i > self.skip_to:
                self.visit(i)
        return Translation("".join(t.out for t in self.s.tokens), self.findings, self.loose)

    def report(self, i: int, message: str) -> None:
        self.findings.append((self.s.tokens[i].line, message))

    def put(self, i: int | None, text: str) -> None:
        if i is not None:
            self.s.tokens[i].out = text

    def visit(self, i: int) -> None:
        s, token = self.s, self.s.tokens[i]
        word = token.text
        if token.kind == "number":
            self.number(i)
        if token.kind == "word" and word in OPENCL_WORDS:
            self.put(i, word + "_")
        if word == "kernel" and token.directive:
            self.put(i, "")
        if token.directive and word not in ("[[", "thread", "constant", "threadgroup") and word not in VECTORS:
            return
        if word == "[[":
            self.attribute(i)
            return
        if word == "vec" and s.after(i) == "<" and s.before(i) != "operator":
            self.vec_constructor(i)
        if word in ("constant", "thread") and self.qualifies_method(i):
            return
        if word == "thread":
            self.thread_reference(i)
        if token.directive:
            return
        self.constructors(i)
        if word == "(":
            self.vector_cast(i)
        if token.kind == "word" and (message := complaint(s, i, self.scope.in_body)):
            self.report(i, message)
        if word == "threadgroup" and self.scope.paren == 0 and s.before(i) not in ("<", ",", ")"):
            if self.threadgroup_variable(i):
                return
        self.track(i)
        if word == "kernel" and token.kind == "word":
            self.put(i, "")

    # ---- literals and types

    def number(self, i: int) -> None:
        text = self.s.text(i)
        if _FLOAT.fullmatch(text):
            self.put(i, text + "f")
        elif _BFLOAT.fullmatch(text):
            self.put(i, f"((bfloat){text[:-2] + ('' if '.' in text else '.0')}f)")

    def vec_constructor(self, i: int) -> None:
        """vec<T, n>(...) -> __mk<vec<T, n>>(...)"""
        s, depth, j = self.s, 0, self.s.next(i)
        while j is not None:
            text = s.text(j)
            if text in (";", "{"):
                return
            depth += (text == "<") - (text == ">")
            if depth == 0:
                break
            j = s.next(j)
        if s.after(j) == "(":
            self.put(i, "__mk<vec")
            self.put(j, ">>")

    def constructors(self, i: int) -> None:
        """`float4 v(...)` and static_cast<bfloat>(...)"""
        s, name = self.s, self.s.next(i)
        if s.text(i) in VECTORS and s.kind(name) == "word" and s.after(name) == "(" and self.scope.in_body:
            assert name is not None
            s.tokens[name].out += f" = metal::__mk<::{s.text(i)}>"
        if (
            s.text(i) == "static_cast"
            and s.after(i) == "<"
            and s.after(i, 2) in ("bfloat", "bfloat16_t")
            and s.after(i, 3) == ">"
        ):
            self.put(i, "metal::__tobf")
            for _ in range(3):
                i = s.next(i) or i
                self.put(i, "")

    def vector_cast(self, i: int) -> None:
        """(float4)x -> a checked conversion"""
        s = self.s
        inner = s.next(i)
        close = s.next(inner)
        if s.text(inner) not in VECTORS or s.text(close) != ")":
            return
        operand, before = s.next(close), s.previous(i)
        operand_ok = s.kind(operand) in ("word", "number") or s.text(operand) in ("(", "*", "-")
        before_ok = s.text(before) == "return" or (
            s.kind(before) == "mark" and s.text(before) not in (")", "]", "}", ">")
        )
        if operand_ok and before_ok and s.text(operand) != "const":
            self.put(i, "metal::__cvt<")
            self.put(close, ">{}->*")

    # ---- address spaces

    def qualifies_method(self, i: int) -> bool:
        """`) const thread {`: the address space of a member function's object."""
        s = self.s
        back = s.previous(i)
        if s.text(back) == "const":
            back = s.previous(back)
        if s.after(i) not in _ENDS_TYPE or s.text(back) != ")":
            return False
        word = s.text(i)
        if word == "constant":
            self.put(i, "__constant")
        elif s.before(s.opening(back)) in self.structs:
            self.put(i, "")  # a constructor: the object may be built in private or generic memory
        self.scope.head.append(word)
        return True

    def thread_reference(self, i: int) -> None:
        """`const thread T&` binds temporaries, so it becomes a generic reference."""
        s, const, back = self.s, self.s.before(i) == "const", self.s.previous(i)
        for _ in range(6):
            if back is None or s.text(back) in (",", "(", ";", "{", "}", "<", "*", "&"):
                break
            const = const or s.text(back) == "const"
            back = s.previous(back)
        depth, j = 0, s.next(i)
        while j is not None:
            text = s.text(j)
            const = const or text == "const"
            depth += (text == "<") - (text == ">")
            if depth == 0 and text == "&":
                if const:
                    self.put(i, "thread_cref")
                    self.loose |= {s.tokens[i].line, s.tokens[j].line}
                return
            if depth == 0 and text in ("*", ",", ")", ";", "=", "{", "(", ":", "&&"):
                return
            j = s.next(j)

    def threadgroup_variable(self, i: int) -> bool:
        """Rewrites `threadgroup T name[n];` inside a kernel; True when it was such a declaration."""
        tokens, end = shared_memory.statement(self.s, i)
        if self.s.text(end) != ";" or not self.scope.in_body or self.s.before(i) == "*":
            return False
        if not shared_memory.is_declaration(self.s, tokens):
            return False
        if "kernel" not in self.scope.kinds:
            self.report(i, "threadgroup variable declared in a non-kernel function")
        made = shared_memory.declaration(self.s, tokens, self.key)
        if made is None:
            self.report(i, "cannot parse threadgroup declaration")
            return False
        assert end is not None
        self.key += made[1]
        newlines = sum(t.out.count("\n") for t in self.s.tokens[i:end])
        for j in range(i, end):
            self.put(j, "")
        self.put(i, made[0] + "\n" * newlines)
        self.skip_to = end - 1
        return True

    # ---- attributes

    def attribute(self, i: int) -> None:
        """[[...]]: names checked against Metal's, then removed."""
        s, depth, j = self.s, 0, i
        while True:
            depth += (s.text(j) == "[[") - (s.text(j) == "]]")
            if depth == 0:
                break
            following = s.next(j)
            if following is None:
                self.report(i, "unterminated attribute")
                return
            j = following
        constant = self.attribute_names(i, j)
        for token in s.tokens[i : j + 1]:
            if token.kind != "blank" or "\n" not in token.text:
                token.out = ""
            elif not token.text.startswith("\\"):
                token.out = "\n" * token.text.count("\n")
        if constant and self.scope.paren == 0 and s.after(j) == ";":
            self.put(i, " = {}")
        self.skip_to = j

    def attribute_names(self, i: int, end: int) -> bool:
        """Checks the names between two marks; True when one is function_constant."""
        s, depth, constant = self.s, 0, False
        directive = s.tokens[i].directive
        for j in (k for k in s.order if i < k < end):
            text = s.text(j)
            depth += (text == "(") - (text == ")")
            if depth or s.kind(j) != "word" or s.before(j) == "::":
                continue
            if text not in ATTRIBUTES and not directive:
                self.report(j, f"unknown attribute '{text}'")
            constant = constant or text == "function_constant"
            if text == "kernel":
                self.scope.head.append("kernel")
            if text == "buffer" and self.scope.paren > 0 and not directive and s.after(j) == "(":
                index = s.after(j, 2)
                if self.buffers.get(index) == self.scope.opened_at:
                    self.report(j, f"buffer index {index} is used twice")
                self.buffers[index] = self.scope.opened_at
        return constant

    # ---- scopes

    def track(self, i: int) -> None:
        """Follows braces and parentheses, so that rules know whether they stand in a kernel, a function or a struct."""
        scope, text = self.scope, self.s.text(i)
        if text == "{":
            self.open_brace(i)
            return
        if text == "}":
            if scope.kinds:
                scope.kinds.pop()
                scope.paren = scope.parens.pop()
            scope.head = []
            return
        if text == ";" and scope.paren == 0:
            scope.head = []
            return
        if text == "(":
            if scope.paren == 0:
                scope.opened_at = i
            scope.paren += 1
        elif text == ")":
            scope.paren -= 1
        scope.head.append(text)

    def open_brace(self, i: int) -> None:
        scope, head = self.scope, self.scope.head
        if scope.kinds and scope.kinds[-1] == "struct":
            self.private_method(i)
        if "kernel" in head and "(" in head and "void" not in head and not scope.kinds:
            self.report(i, "invalid return type for kernel function")
        function = "kernel" if "kernel" in head else "function"
        if scope.in_body:
            kind = "block"
        elif any(word in head for word in ("struct", "union", "class", "enum")):
            kind = function if "(" in head else "struct"
        elif "namespace" in head or "extern" in head:
            kind = "namespace"
        else:
            kind = function if "(" in head else "initializer"
        scope.kinds.append(kind)
        scope.parens.append(scope.paren)
        scope.head, scope.paren = [], 0

    def private_method(self, i: int) -> None:
        """A member function without an address space works on `thread` objects."""
        s, head = self.s, self.scope.head
        before = s.previous(i)
        if (
            "(" not in head
            or "static" in head
            or "friend" in head
            or ":" in head
            or s.text(before) not in (")", "const")
        ):
            return
        opening = s.opening(before if s.text(before) == ")" else s.previous(before))
        if opening is not None and s.before(opening) not in self.structs:
            self.put(i, "__private {")
