"""Signals and closed pipes: how a process that is stopped unwinds, and ends."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from beam_pipeline.terminal import printing
from transforms.errors import COMMITTED_NOTE

# Signals that stop a run, and their names in messages; the exit code is 128 + number.
_STOPS = {
    signal.SIGINT: "Interrupted",
    signal.SIGTERM: "Terminated",
    signal.SIGHUP: "Hung up",
}
# As a shell reports a program that SIGPIPE has ended: 128 + 13.
PIPE_CLOSED = 141


class Stopped(BaseException):
    """A signal: unwinds like Ctrl-C.

    Attributes:
      number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class PipeClosed(BaseException):
    """Nobody reads stdout any more; click alone would exit with 1, as for damage."""


def catch_stops() -> dict[signal.Signals, Any]:
    """Installs handlers for the signals that stop a run; returns those before."""
    before = {}
    for signum in _STOPS:
        handler = signal.getsignal(signum)
        # Under nohup, and in the background of a shell, some are ignored on purpose.
        if handler not in (signal.SIG_IGN, None):
            before[signum] = handler
            signal.signal(signum, _stop)
    return before


def _stop(number: int, _frame: object) -> NoReturn:
    """Stops the run with its clean-up; a second signal ends the process at once."""
    for signum in _STOPS:
        if signal.getsignal(signum) == _stop:
            signal.signal(signum, _stop_at_once)
    raise Stopped(number)


def _stop_at_once(number: int, _frame: object) -> NoReturn:
    # Safe: workers end with their parent, and the next run removes what is left.
    os._exit(128 + number)


def end_stopped(number: int, stop: BaseException, arguments: Sequence[str]) -> NoReturn:
    """Ends the process at once, since Beam's thread may still be writing a file."""
    # click raises its Abort from the KeyboardInterrupt that carries the note.
    notes = [
        note
        for error in (stop, stop.__cause__, stop.__context__)
        for note in getattr(error, "__notes__", ())
    ]
    outcome = ""
    if COMMITTED_NOTE in notes:
        outcome = f"; {COMMITTED_NOTE}"
    elif arguments[:1] == ["convert"]:
        outcome = "; nothing was committed. Run it again to go on"
    elif arguments[:1] in (["subset"], ["merge"]):
        outcome = "; nothing was committed"
    # After SIGHUP the terminal may be closed.
    with contextlib.suppress(OSError):
        printing.say(f"{_STOPS[signal.Signals(number)]}{outcome}.")
        sys.stdout.flush()
    os._exit(128 + number)
