"""Runs of the command line, in this process or in one of its own."""

import contextlib
import dataclasses
import io
import signal
import subprocess
import sys
from typing import Any

import pytest

from beam_pipeline.cli import main
from tests.support import segments


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run of the command line came to."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Run:
    """Runs the command line in this process."""
    where, rest = segments.split(arguments)
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            segments.waiting(where),
            pytest.raises(SystemExit) as stop,
        ):
            main(rest)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert isinstance(stop.value.code, int)
    return Run(stop.value.code, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Run:
    """Runs the command line; it must end with 0."""
    run = command(*arguments)
    assert run.code == 0, run
    return run


def failed(code: int, *arguments: object) -> Run:
    """Runs the command line; it must end with this code."""
    run = command(*arguments)
    assert run.code == code, run
    return run


def convert(source: object, output: object, *options: object) -> Run:
    """Runs `convert`; it must end with 0."""
    return done("convert", source, output, *options)


def refused(code: int, source: object, output: object, *options: object) -> str:
    """Runs `convert`, which must end with `code`; returns its message."""
    run = failed(code, "convert", source, output, *options)
    assert run.out == ""
    assert "Traceback" not in run.err
    # Messages about the run's recovery may come before it.
    said, mark, error = run.err.rpartition("error: ")
    assert mark
    assert said == "" or said.endswith("\n")
    assert len(error.encode()) <= 1024 + len("\n")
    return mark + error


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line as a process of its own."""
    return subprocess.run(
        segments.program(*arguments),
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": 60, **options},
    )


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs Python as a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        **{"check": False, **options},
    )
