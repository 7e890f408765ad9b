"""The command line: rejects unknown flags, starts fast, returns meaningful exit codes.

0  committed, or nothing wrong was found
1  the run failed and nothing was committed, or damage was found
2  wrong command line, spec or output, or a path that does not exist
3  more rejects than tolerated, or too few or many records; nothing committed
4  the source is there, but its content does not fit
5  another run writes to the output, or has just done so; run again later
"""

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from beam_pipeline import terminal
from beam_pipeline.beam_internals.loading import spare_imports
from beam_pipeline.commands.group import cli, convert
from beam_pipeline.commands.options import (
    JobCommand,
    check_beam_words,
    is_flags_only,
    split_flags,
)
from transforms.errors import COMMITTED_NOTE, BeamTFRecordError, bounded, no_memory
from transforms.storage.paths import check_file_names
from transforms.storage.retry import naming

_NAME = "beam-tfrecord"
# With what the shell asks for: see docs/start.md.
_COMPLETES = "_BEAM_TFRECORD_COMPLETE"
# Errors have at most 1 KiB; this many bytes leave room for the note after one.
_ROOM_FOR_NOTE = 960
# As a shell reports a program that SIGPIPE has ended: 128 + 13.
_PIPE_CLOSED = 141
# Signals that stop a run, and their names in messages; the exit code is 128 + number.
_STOPS = {
    signal.SIGINT: "Interrupted",
    signal.SIGTERM: "Terminated",
    signal.SIGHUP: "Hung up",
}


class _Stopped(BaseException):
    """A signal, whose number is its argument: unwinds like Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits; no user's mistake shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name that the encoding lacks must not end in UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")
    # Until `collect_seldom`.
    gc.disable()
    before = _catch_stops()
    try:
        code = _run(arguments)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except BrokenPipeError:
        # Nobody reads stdout any more.
        terminal.silence(sys.stdout)
        code = _PIPE_CLOSED
    except (click.UsageError, BeamTFRecordError, OSError) as error:
        code = _fail(error)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        code = _fail(error)
    except (KeyboardInterrupt, _Stopped) as stop:
        _end_stopped(stop, arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code)


def program() -> NoReturn:
    """The console script: runs `main`, and exits without Python's clean-up.

    By then everything is written and closed, and to free a hundred thousand objects
    one by one would take another third of a second.
    """
    terminal.open_all()
    spare_imports()
    try:
        main()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit code.

    Not by click's `main`, for which a closed pipe is an error like damage.
    """
    if asked := os.environ.get(_COMPLETES):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, _NAME, _COMPLETES, asked)
    at = [*arguments, "--"].index("--")
    words, beam_flags = [*arguments[:at]], [*arguments[at + 1 :]]
    check_file_names()
    if is_flags_only(words):
        words, more = split_flags(words, convert)
        words, beam_flags = ["convert", *words], [*more, *beam_flags]
    check_beam_words(words, beam_flags)
    with naming(terminal.STDOUT):
        context = cli.make_context(_NAME, words, obj={"beam_flags": beam_flags})
    with context:
        code = cli.invoke(context)
    with naming(terminal.STDOUT):
        sys.stdout.flush()
    return code or 0


def _fail(error: Exception) -> int:
    """Prints an error; returns the exit code."""
    message = str(error)
    if isinstance(error, click.UsageError):
        message = _usage(error)
    elif isinstance(error, MemoryError | RuntimeError):
        message = str(no_memory())
    elif isinstance(error, OSError):
        suffix = f": {error.filename}" if error.filename else ""
        message = f"{error.strerror or error}{suffix}"
    if COMMITTED_NOTE in getattr(error, "__notes__", ()):
        message = f"{bounded(message, _ROOM_FOR_NOTE)} ({COMMITTED_NOTE})"
    is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)
    terminal.say(message if is_help else f"error: {bounded(message)}")
    return getattr(error, "exit_code", 1)


def _usage(error: click.UsageError) -> str:
    """Returns the message for a wrong command line, with where to read on."""
    message = error.format_message()
    if error.ctx is None or isinstance(error, click.exceptions.NoArgsIsHelpError):
        return message
    if isinstance(error.ctx.command, JobCommand) and "extra argument" in message:
        message = f"{message.rstrip('.')}; a pattern must be in quotes, as in '*.csv'"
    end = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{end} See '{error.ctx.command_path} --help'."


def _catch_stops() -> dict[signal.Signals, Any]:
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
    raise _Stopped(number)


def _stop_at_once(number: int, _frame: object) -> NoReturn:
    """Ends the process; safe: workers end too, and the next run removes the rest."""
    os._exit(128 + number)


def _end_stopped(stop: BaseException, arguments: Sequence[str]) -> NoReturn:
    """Ends the process at once, since Beam's thread may still be writing a file."""
    number = signal.Signals(*stop.args or [signal.SIGINT])
    outcome = ""
    if COMMITTED_NOTE in getattr(stop, "__notes__", ()):
        outcome = f"; {COMMITTED_NOTE}"
    elif arguments[:1] == ["convert"] or is_flags_only(arguments):
        outcome = "; nothing was committed. Run it again to go on"
    elif arguments[:1] in (["subset"], ["merge"]):
        outcome = "; nothing was committed"
    # After SIGHUP the terminal may be closed.
    with contextlib.suppress(OSError):
        terminal.say(f"{_STOPS[number]}{outcome}.")
        sys.stdout.flush()
    os._exit(128 + number)
