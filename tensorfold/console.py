"""Runs a program in a terminal so that it ends in words and with the right status; knows no model and no arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

INTERRUPTED = 130  # 128 + SIGINT, as shells count
READER_GONE = 141  # 128 + SIGPIPE


def run(main: Callable[[], int], interrupted: str = "interrupted") -> int:
    """The exit status of `main()`, for sys.exit.

    Its own status; 1 for wrong input (ValueError, TypeError), files (OSError), a missing extra (ImportError) and
    numbers (ArithmeticError), each one line on stderr; 130 for Ctrl-C, which says `interrupted`; 141 in silence where
    whoever read stdout has gone (a pipe to head). Letters that a stream's encoding lacks are written as escapes, and
    streams that are not there (`2>&-`) swallow what goes to them. Other exceptions are faults and keep their traceback.
    """
    _settle()
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return READER_GONE
    except KeyboardInterrupt:
        _say(interrupted, "\n" if sys.stdout.isatty() else "")
        return INTERRUPTED
    except (ImportError, ValueError, TypeError, OSError, ArithmeticError) as error:
        _say(str(error))
        return 1
    finally:
        _quiet()


def _settle() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name) or open(os.devnull, mode)
        setattr(sys, name, stream)
        if isinstance(stream, TextIOWrapper):  # not where a notebook or a test has put its own
            stream.reconfigure(errors="surrogateescape" if mode == "r" else "backslashreplace")


def _say(text: str, before: str = "") -> None:
    try:
        program = Path(sys.argv[0]).name
        name = "tensorfold" if program == "__main__.py" else program
        print(f"{before}{name}: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody is there to read it


def _quiet() -> None:
    """What a stream cannot write any more must not be complained about while the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
