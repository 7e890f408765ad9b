"""Messages on stderr. A broken stderr never fails a run."""

import contextlib
import os
import sys
from typing import TextIO

from beam_pipeline.terminal.lines import fitted
from beam_pipeline.terminal.printing import printable

__all__ = ["open_all", "say", "silence"]


def say(text: str) -> None:
    """Prints a line on standard error, or drops it where that is broken or full."""
    if sys.stderr is None:
        return
    try:
        line = fitted(printable(text, keep="\n"), sys.stderr)
        print(line, file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Drops all that a broken stream still gets: its buffer is written at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_all() -> None:
    """Opens standard streams that the caller has closed, to /dev/null.

    Otherwise the next files opened, shards among them, would get the numbers 0 to 2,
    and what a library prints would go into them.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Stays open as long as the program runs.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
