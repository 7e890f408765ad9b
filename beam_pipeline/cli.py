"""The command line: rejects unknown flags, starts fast, returns meaningful exit codes.

0  committed, or nothing wrong was found
1  the run failed and nothing was committed, or damage was found
2  wrong command line, spec or output, or a path that does not exist
3  more rejects than tolerated, or too few or many records; nothing committed
4  the source is there, but its content does not fit
5  another run writes to the output, or has just done so; run again later
"""

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from beam_pipeline.beam_internals.loading import spare_imports
from beam_pipeline.commands.flags_only import (
    check_beam_words,
    is_flags_only,
    split_flags,
)
from beam_pipeline.commands.group import cli, convert
from beam_pipeline.commands.options import JobCommand
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.stops import (
    PIPE_CLOSED,
    PipeClosed,
    Stopped,
    catch_stops,
    end_stopped,
)
from transforms.errors import (
    COMMITTED_NOTE,
    BeamTFRecordError,
    UsageError,
    bounded,
    no_memory,
)
from transforms.storage.paths import check_file_names

# Errors have at most 1 KiB; this many bytes leave room for the note after one.
_ROOM_FOR_NOTE = 960


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits; no user's mistake shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    beam_flags: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, beam_flags = arguments[:at], arguments[at + 1 :]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name that the encoding lacks must not end in UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")
    # Until `collect_seldom`.
    gc.disable()
    before = catch_stops()
    try:
        check_file_names()
        if is_flags_only(arguments):
            arguments, more = split_flags(arguments, convert)
            arguments, beam_flags = ["convert", *arguments], [*more, *beam_flags]
        check_beam_words(arguments, beam_flags)
        code = cli.main(
            arguments,
            prog_name="beam-tfrecord",
            standalone_mode=False,
            obj={"beam_flags": beam_flags},
        )
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        printing.say(error.format_message())
        code = UsageError.exit_code
    except click.UsageError as error:
        code = _fail(_usage(error), UsageError.exit_code)
    except BeamTFRecordError as error:
        code = _fail(_with_note(str(error), error), error.exit_code)
    except PipeClosed:
        printing.silence(sys.stdout)
        code = PIPE_CLOSED
    except OSError as error:
        suffix = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror or error}{suffix}"
        code = _fail(_with_note(text, error), 1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        code = _fail(_with_note(str(no_memory()), error), 1)
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        code = end_stopped(signal.SIGINT, stop, arguments)
    except Stopped as stop:
        code = end_stopped(stop.number, stop, arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code or 0)


def program() -> NoReturn:
    """The console script: runs `main`, and exits without Python's clean-up.

    By then everything is written and closed, and to free a hundred thousand objects
    one by one would take another third of a second.
    """
    printing.open_all()
    spare_imports()
    try:
        main()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _with_note(message: str, error: BaseException) -> str:
    """Returns the message, and adds that the dataset is committed if it is."""
    if COMMITTED_NOTE in getattr(error, "__notes__", ()):
        message = f"{bounded(message, _ROOM_FOR_NOTE)} ({COMMITTED_NOTE})"
    return bounded(message)


def _usage(error: click.UsageError) -> str:
    """Returns the message for a wrong command line, with where to read on."""
    message = error.format_message()
    if error.ctx is None:
        return message
    if isinstance(error.ctx.command, JobCommand) and "extra argument" in message:
        message = f"{message.rstrip('.')}; a pattern must be in quotes, as in '*.csv'"
    end = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{end} See '{error.ctx.command_path} --help'."


def _fail(message: str, code: int) -> int:
    printing.say(f"error: {message}")
    return code
