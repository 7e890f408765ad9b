"""Workers that somebody else has started: of another version, or gone for good."""

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from beam_pipeline.version import __version__
from tests.clusters.runs import ROOT, ROWS, committed, convert, flags_for, same
from tests.support.segments import program
from tests.support.worker_pool import Pool

Folder = pathlib.Path
_PACKAGES = ("beam_pipeline", "transforms", "beam_tfrecord")


@contextlib.contextmanager
def pool(home: Folder, *, code: Folder = ROOT) -> Iterator[Pool]:
    """Runs Beam's own pool of workers; kills all of it at the end.

    Args:
      home: its folder.
      code: folder of the program that its workers have.
    """
    running = Pool(home, code=code)
    try:
        yield running
    finally:
        running.end()


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


def refused(data: Folder, tmp_path: Folder, home: Folder, code: Folder) -> str:
    """Returns the error of a run whose workers have another program."""
    with pool(home, code=code) as workers:
        flags = ("--runner", "prism", "--shared-output")
        done = convert(
            data / "rows.csv", tmp_path / "out", *flags, beam_flags=workers.flags
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
    assert f"pip install 'beam-tfrecord=={__version__}' 'pyarrow==" in said


def test_a_pool_that_is_gone_for_good(
    data: Folder, tmp_path: Folder, home: Folder, request: pytest.FixtureRequest
) -> None:
    """A line says what to check; Ctrl-C ends the job, and the next run resumes."""
    flags = flags_for("flink", request)
    source, output = data / "rows.csv", tmp_path / "out"
    told = tmp_path / "told.txt"
    with pool(home) as workers, told.open("w") as errors:
        begun = ("convert", source, output, *ROWS, "--shared-output", *flags)
        process = subprocess.Popen(
            program(*begun, *workers.flags),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
        )
        end = time.monotonic() + 200
        while not any(tmp_path.glob(".out.*/*/reports-*/*.worker")):
            assert process.poll() is None, told.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
    killed = time.monotonic()
    while "no worker of flink has reported for" not in told.read_text():
        assert process.poll() is None, told.read_text()
        assert time.monotonic() < killed + 80
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not output.exists()
    committed(convert(source, output, *ROWS, *flags), output)
    committed(convert(source, tmp_path / "here", *ROWS), tmp_path / "here")
    same(output, tmp_path / "here")
