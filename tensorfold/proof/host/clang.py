"""Finding and calling clang 19, the only tool the host backend needs. Knows no Metal.

clang is asked for C++ for OpenCL on x86-64, without contraction or excess precision: plain IEEE arithmetic.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
HOW_TO_GET = "the host backend needs clang 19 on x86-64 Linux: apt-get install clang-19"
LANGUAGE = (
    "-x", "clcpp", "-cl-std=CLC++2021", "--target=x86_64-linux-gnu", "-march=x86-64-v3",
    "-cl-single-precision-constant", "-cl-no-stdinc", "-nostdinc", "-D__METAL_VERSION__=320", "-ffp-contract=off",
    "-fno-fast-math", "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
    "-ferror-limit=200", "-fno-spell-checking", "-Wno-everything", "-Wimplicit-float-conversion",
    "-Wno-implicit-int-float-conversion", "-Werror=return-type", "-Werror=uninitialized", "-Werror=vla",
)  # fmt: skip
_LINE_MARK = re.compile(r"\s*#\s*line\b")
_INSIDE = re.compile(r"(?<=[(<,]) +| +(?=[)>,])")  # blanks that a broken line may add
_MESSAGE = re.compile(r"^(.+?):(\d+):\d+: (?:fatal )?(error|warning): (.*)$", re.M)


class ClangMissing(RuntimeError):
    """clang 19 is not on this machine; the message says how to get it."""


class ClangFailed(RuntimeError):
    """clang ended with an error that names no line: a fault of this harness, never a verdict on a kernel."""


@dataclass(frozen=True)
class Message:
    """One message of the compiler."""

    file: str
    line: int
    level: str
    text: str


@cache
def _version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout


@cache
def find_clang() -> str | None:
    """The path of a clang of version 19, or None."""
    for name in ("clang-19", "clang"):
        path = shutil.which(name)
        if path and os.uname().machine == "x86_64":
            version = _version(path)
            if re.search(r"version 19\.", version) and "linux" in version:
                return path
    return None


def require_clang() -> str:
    """The path of clang 19; raises ClangMissing with what to install."""
    path = find_clang()
    if path is None:
        raise ClangMissing(HOW_TO_GET)
    return path


def run(arguments: list[str], source: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run clang with the source on its standard input."""
    return subprocess.run([require_clang(), *arguments], input=source, capture_output=True, text=True)


def compile_metal(source: str, flags: Sequence[str], *wanted: str) -> tuple[list[Message], str]:
    """Compile translated Metal behind its library, under flags into what is wanted of it; (messages, standard output).

    ClangFailed when clang fails without naming an error.
    """
    library = ("-Xclang", "-include-pch", "-Xclang", str(_library(LANGUAGE, tuple(flags))))
    done = run([*LANGUAGE, *flags, *library, *wanted, "-"], source)
    messages = [Message(m[1], int(m[2]), m[3], m[4]) for m in _MESSAGE.finditer(done.stderr)]
    if done.returncode and not any(m.level == "error" for m in messages):
        raise ClangFailed(f"clang failed without naming an error: {done.stderr[-600:]}")
    return messages, done.stdout


@cache
def _library(language: tuple[str, ...], flags: tuple[str, ...]) -> Path:
    """Metal's standard library as these flags see it, read once for all kernels: half of what a small one takes."""
    texts = (path.read_text() for path in sorted((HERE / "metal").iterdir()))
    told = "\0".join([_version(require_clang()), str(HERE), *texts, *language, *flags])  # clang holds it to each byte
    path = cache_folder() / f"library_{hashlib.sha256(told.encode()).hexdigest()[:24]}.pch"
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        made = ("-c", "-Xclang", "-emit-pch", "-Xclang", "-fno-pch-timestamp", "-o", str(partial))
        done = run([*language, *flags, *made, str(HERE / "metal" / "stdlib.h")])
        if done.returncode:
            raise ClangFailed(f"clang could not read Metal's library: {done.stderr[-600:]}")
        os.replace(partial, path)
    return path


@cache
def cache_folder() -> Path:
    """Where compiled objects are kept: the user's cache folder, or a temporary one where that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensorfold" / "host"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="tensorfold-host-"))


# what else makes an object of a text, beside clang and the flags
_MAKERS = ("translate.py", "tokens.py", "branches.py", "rules.py", "shared_memory.py", "check.py", "metal/*")


@cache
def _makers() -> str:
    paths = [path for pattern in _MAKERS for path in sorted(HERE.glob(pattern))]
    return "\0".join(p.read_text() if p.suffix == ".py" else _words(p.read_text()) for p in paths)


def fingerprint(texts: Iterable[str]) -> str:
    """Hex digits that name an object of these texts and flags: the same wherever they stand in a file, whatever stands
    between their words, for comments move no bit."""
    return hashlib.sha256("\0".join([*map(_words, texts), _makers()]).encode()).hexdigest()[:24]


def _words(text: str) -> str:
    """A text's words without marks of lines; a directive keeps a line of its own."""
    words: list[str] = []
    directive = False
    for line in (" ".join(line.split()) for line in text.split("\n") if not _LINE_MARK.match(line)):
        directive = line.startswith("#") or (directive and words[-2].endswith("\\"))
        words += ["\n", line, "\n"] if directive else [line] if line else []
    return _INSIDE.sub("", " ".join(words))
