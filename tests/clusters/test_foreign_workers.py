"""Workers that somebody else has started: of another version, or gone for good."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from beam_pipeline.version import __version__
from tests.clusters.runs import ROOT, ROWS, committed, convert, flags_for, same
from tests.support.segments import program

Folder = pathlib.Path
_START_SECONDS = 60
_PACKAGES = ("beam_pipeline", "transforms", "beam_tfrecord")


@contextlib.contextmanager
def pool(home: Folder, *, code: Folder = ROOT) -> Iterator[str]:
    """Runs Beam's own pool of workers; yields its address. Kills all of it at the end.

    Args:
      home: its folder; it has nothing of this process's environment.
      code: folder of the program that its workers have.
    """
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    begin = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    process = subprocess.Popen(
        [*begin, f"--service_port={port}"],
        env={
            # The pool starts the first `python` there.
            "PATH": f"{Folder(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(code),
            "HOME": str(home),
            "TMPDIR": str(home),
        },
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await(port)
        yield f"localhost:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(port: int) -> None:
    """Waits until something listens at a port."""
    end = time.monotonic() + _START_SECONDS
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("localhost", port)),
        ):
            return
        assert time.monotonic() < end, f"nothing listens at {port}"
        time.sleep(0.1)


def with_version(code: Folder, version: str) -> None:
    """Gives another version to a copy of the program."""
    path = code / "beam_pipeline" / "version.py"
    text = path.read_text()
    changed = text.replace(f'"{__version__}"', f'"{version}"')
    assert changed != text
    path.write_text(changed)


@pytest.fixture
def home(tmp_path: Folder) -> Folder:
    """The home of a pool."""
    path = tmp_path / "home"
    path.mkdir()
    return path


def of_pool(address: str) -> tuple[str, str]:
    """Returns Beam's flags for the workers of a pool."""
    return "--environment_type=EXTERNAL", f"--environment_config={address}"


def refused(data: Folder, tmp_path: Folder, home: Folder, code: Folder) -> str:
    """Returns the error of a run whose workers have another program."""
    with pool(home, code=code) as address:
        flags = ("--runner", "prism", "--shared-output")
        done = convert(
            data / "rows.csv", tmp_path / "out", *flags, beam_flags=of_pool(address)
        )
    assert done.returncode == 1, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"code", "home"}
    return done.stderr.splitlines()[-1]


@pytest.mark.usefixtures("prism")
def test_workers_of_another_version(
    data: Folder, tmp_path: Folder, home: Folder
) -> None:
    """Refused at the first bundle, by host and version; nothing is left."""
    code = tmp_path / "code"
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, code / name)
    with_version(code, "0.0.9")
    said = refused(data, tmp_path, home, code)
    assert f"host {socket.gethostname()!r}" in said
    assert f"has beam-tfrecord 0.0.9 and not {__version__}" in said
    assert f"pip install 'beam-tfrecord=={__version__}'" in said


def test_a_pool_that_is_gone_for_good(
    data: Folder, tmp_path: Folder, home: Folder, request: pytest.FixtureRequest
) -> None:
    """A line says what to check; Ctrl-C ends the job, and the next run resumes."""
    flags = flags_for("flink", request)
    source, output = data / "rows.csv", tmp_path / "out"
    told = tmp_path / "told.txt"
    with pool(home) as address, told.open("w") as errors:
        begun = ("convert", source, output, *ROWS, "--shared-output", *flags)
        process = subprocess.Popen(
            program(*begun, *of_pool(address)),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
        )
        end = time.monotonic() + 200
        while not any(tmp_path.glob(".out.*/*/reports/*/*.worker")):
            assert process.poll() is None, told.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
    killed = time.monotonic()
    while "no worker of flink has reported for" not in told.read_text():
        assert process.poll() is None, told.read_text()
        assert time.monotonic() < killed + 80
        time.sleep(0.1)
    assert f"a pool at {address} runs on each of its machines" in told.read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not output.exists()
    committed(convert(source, output, *ROWS, *flags), output)
    committed(convert(source, tmp_path / "here", *ROWS), tmp_path / "here")
    same(output, tmp_path / "here")
