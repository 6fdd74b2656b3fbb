"""Tokens of Metal source, one for one, line numbers kept. Knows no meaning of any word."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<blank>\s+|\\\n|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"""|(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<mark>\[\[|\]\]|::|->\*|->|<<=|>>=|<=>|\.\.\.|[-+*/%&|^<>=!]=|&&|\|\||<<|\+\+|--|[\s\S])""",
    re.S,
)


@dataclass
class Token:
    """kind is blank, string, number, word or mark; `out` is what the translation writes in its place."""

    kind: str
    text: str
    line: int
    directive: bool = False
    out: str = ""

    def __post_init__(self) -> None:
        self.out = self.text


def tokenize(source: str) -> list[Token]:
    """Every character of the source in tokens; tokens of preprocessor lines are marked."""
    tokens: list[Token] = []
    line = position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        assert match is not None and match.lastgroup is not None  # the last alternative takes any character
        tokens.append(Token(match.lastgroup, match[0], line + 1))
        line += match[0].count("\n")
        position = match.end()
    _mark_directives(tokens)
    return tokens


def _mark_directives(tokens: list[Token]) -> None:
    start_of_line, inside = True, False
    for token in tokens:
        newline = token.kind == "blank" and "\n" in token.text
        if inside:
            token.directive = True
            if newline and not token.text.startswith(("\\", "/*")):
                inside, start_of_line = False, True
            continue
        if token.text == "#" and start_of_line:
            inside = token.directive = True
        elif newline:
            start_of_line = True
        elif token.kind != "blank":
            start_of_line = False


class Stream:
    """The tokens that are not blank, with their neighbours."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.order = [i for i, token in enumerate(tokens) if token.kind != "blank"]
        self._next = dict(zip(self.order, self.order[1:]))
        self._previous = dict(zip(self.order[1:], self.order))

    def next(self, i: int | None) -> int | None:
        """The token after i."""
        return None if i is None else self._next.get(i)

    def previous(self, i: int | None) -> int | None:
        """The token before i."""
        return None if i is None else self._previous.get(i)

    def text(self, i: int | None) -> str:
        """The text as written; empty for no token."""
        return "" if i is None else self.tokens[i].text

    def after(self, i: int | None, steps: int = 1) -> str:
        """The text `steps` tokens after i."""
        for _ in range(steps):
            i = self.next(i)
        return self.text(i)

    def before(self, i: int | None) -> str:
        """The text of the token before i."""
        return self.text(self.previous(i))

    def kind(self, i: int | None) -> str:
        """The kind of a token; empty for no token."""
        return "" if i is None else self.tokens[i].kind

    def opening(self, i: int | None) -> int | None:
        """The `(` that the `)` at or before i closes."""
        depth = 0
        while i is not None:
            if self.text(i) == ")":
                depth += 1
            elif self.text(i) == "(":
                depth -= 1
                if depth == 0:
                    return i
            i = self.previous(i)
        return None

    def call_around(self, i: int) -> str:
        """The name of the function in whose arguments the token at i stands."""
        depth, j = 0, self.previous(i)
        while j is not None and self.text(j) not in (";", "{", "}"):
            depth += (self.text(j) == ")") - (self.text(j) == "(")
            if depth < 0:
                return self.before(j)
            j = self.previous(j)
        return ""

    def written(self, indices: list[int]) -> str:
        """What stands between the first and the last of these tokens, as translated so far."""
        return "".join(t.out for t in self.tokens[indices[0] : indices[-1] + 1]) if indices else ""
