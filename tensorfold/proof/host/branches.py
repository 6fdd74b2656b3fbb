"""Preprocessor branches as Metal sees them, dead ones blanked so that no rule reads them. Knows no grammar."""

from __future__ import annotations

import re

_KNOWN = {"__METAL_VERSION__": 320, "__METAL__": 1}
_UNDEFINED = {"__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus_cli"}
_DIRECTIVE = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)")


def _truth(expression: str) -> bool | None:
    """The value of a condition on the macros above; None when it depends on others."""

    def defined(match: re.Match[str]) -> str:
        return "1" if match[1] in _KNOWN else "0" if match[1] in _UNDEFINED else "?"

    def value(match: re.Match[str]) -> str:
        return str(_KNOWN.get(match[0], 0 if match[0] in _UNDEFINED else "?"))

    text = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", defined, expression)
    text = re.sub(r"\b[A-Za-z_]\w*\b", value, text)
    if not re.fullmatch(r"[\d\s()<>=!&|+*-]*", text):
        return None
    text = (
        text.replace("&&", " and ").replace("||", " or ").replace("!=", "<>").replace("!", " not ").replace("<>", "!=")
    )
    try:
        return bool(eval(text, {"__builtins__": {}}))  # digits and operators only, checked above
    except SyntaxError:
        return None


def metal_branches(source: str) -> str:
    """The source without branches that Metal would not see, and macros that stand for `threadgroup` written out."""
    out: list[str] = []
    stack: list[list[bool | None]] = []
    shared_names: set[str] = set()
    for line in source.split("\n"):
        live = all(state[1] is not False for state in stack)
        if match := _DIRECTIVE.match(re.sub(r"//.*", "", line)):
            out.append(_directive(match[1], match[2].strip(), line, live, stack))
            continue
        if not live:
            out.append("")
            continue
        if match := re.match(r"\s*#\s*define\s+(\w+)\s+threadgroup\s*(//.*)?$", line):
            shared_names.add(match[1])
            out.append("")
            continue
        out.append(re.sub(rf"\b({'|'.join(shared_names)})\b", "threadgroup", line) if shared_names else line)
    return "\n".join(out)


def _directive(word: str, rest: str, line: str, live: bool, stack: list[list[bool | None]]) -> str:
    """Updates the stack of [some branch taken, this branch live]; returns the line, or a blank where it was decided."""
    if word in ("if", "ifdef", "ifndef"):
        value = _truth(rest if word == "if" else f"defined({rest})")
        if word == "ifndef" and value is not None:
            value = not value
        stack.append([value, value])
        decided = value is not None
    elif not stack:
        return line
    elif word == "endif":
        decided = stack.pop()[0] is not None
    else:
        state = stack[-1]
        decided = state[0] is not None
        if decided:
            state[1] = not state[0] and (word == "else" or bool(_truth(rest)))
            state[0] = state[0] or state[1]
    return "" if decided or not live else line
