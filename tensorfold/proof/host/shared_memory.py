"""Threadgroup variables of a kernel become references into the emulator's arena. Knows no other rewriting."""

from __future__ import annotations

from tensorfold.proof.host.tokens import Stream


def statement(stream: Stream, i: int) -> tuple[list[int], int | None]:
    """The tokens after `threadgroup` at i up to its `;`, and the token that ends it."""
    found: list[int] = []
    braces, j = 0, stream.next(i)
    while j is not None and not (braces == 0 and stream.text(j) in (";", "}")):
        if stream.text(j) == "{":
            if stream.before(j) != "=":
                break
            braces += 1
        if stream.text(j) == "}":
            braces -= 1
        found.append(j)
        j = stream.next(j)
    return found, j


def is_declaration(stream: Stream, tokens: list[int]) -> bool:
    """Whether these tokens declare variables in threadgroup memory, not pointers to it."""
    depth, top = 0, []
    for j in tokens:
        text = stream.text(j)
        if text in ("<", "["):
            depth += 1 if text == "<" else 100
        elif text in (">", "]"):
            depth -= 1 if text == ">" else 100
        elif text == ">>":
            depth -= 2
        elif depth == 0:
            top.append(text)
    return not any(text in ("*", "&", "(", "auto") for text in top)


def declaration(stream: Stream, tokens: list[int], first_key: int) -> tuple[str, int] | None:
    """(references in place of the declaration, number of variables); None where it cannot be read."""
    depth, first = 0, None
    for position, j in enumerate(tokens):
        text = stream.text(j)
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
        elif depth == 0 and stream.kind(j) == "word":
            if position + 1 == len(tokens) or stream.text(tokens[position + 1]) in ("[", ",", "="):
                first = position
                break
    if not first:
        return None
    element = stream.written(tokens[:first])
    out: list[str] = []
    for declarator in _declarators(stream, tokens[first:]):
        equals = next((q for q, j in enumerate(declarator) if stream.text(j) == "="), len(declarator))
        zeroed, declarator = equals < len(declarator), declarator[:equals]
        name, dims = stream.text(declarator[0]), stream.written(declarator[1:])
        key = first_key + len(out)
        pointer = f"(*){dims}" if dims else "*"
        reference = f"threadgroup {element} (&{name}){dims}"
        where = f"tf_shared({-key if zeroed else key}, sizeof({element} {dims}))"
        out.append(f"{reference} = *(threadgroup {element} {pointer}){where}")
    return "; ".join(out), len(out)


def _declarators(stream: Stream, tokens: list[int]) -> list[list[int]]:
    found: list[list[int]] = [[]]
    brackets = 0
    for j in tokens:
        brackets += (stream.text(j) == "[") - (stream.text(j) == "]")
        if stream.text(j) == "," and brackets == 0:
            found.append([])
        else:
            found[-1].append(j)
    return found
