"""The pool of workers, as an engine uses it: real processes, and no engine."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.stress import sizes
from tests.support.worker_pool import PROGRAM, Pool, await_that, runs

Folder = pathlib.Path
_WAIT_SECONDS = 60.0


@pytest.fixture
def pool(tmp_path: Folder) -> Iterator[Pool]:
    """A pool on a free port; what it has started ends with the test."""
    # Its own program and interpreter, whatever is first on the PATH.
    started = Pool(tmp_path, PATH=str(tmp_path))
    try:
        yield started
    finally:
        started.end()


def test_start_says_where_and_what(pool: Pool) -> None:
    """The address, loopback alone, and the versions that a job is compared with."""
    said = pool.said.read_text()
    assert "listens on localhost:" in said
    python = "{}.{}.{}".format(*sys.version_info)
    assert f"Python {python}" in said
    assert "; beam-tfrecord " in said


def test_workers_use_the_pools_interpreter(pool: Pool) -> None:
    """There is no Python on the PATH at all."""
    worker = pool.start("one")
    command = Folder(f"/proc/{worker}/cmdline").read_bytes().split(b"\0")
    assert command[0].decode() == sys.executable


def test_a_worker_is_stopped(pool: Pool) -> None:
    """Its process and its files are gone; the others stay."""
    first, second = pool.start("one"), pool.start("two")
    assert len(list(pool.temporary.iterdir())) == 2
    pool.stop("one")
    await_that(lambda: not runs(first))
    await_that(lambda: len(list(pool.temporary.iterdir())) == 1)
    assert runs(second)
    # A second time: an engine may repeat itself.
    pool.stop("one")
    assert pool.workers() == [second]


def test_a_worker_that_is_killed_leaves_nothing(pool: Pool) -> None:
    """Its files are removed, and its number is that of no zombie."""
    worker = pool.start("one")
    os.kill(worker, signal.SIGKILL)
    await_that(lambda: not list(pool.temporary.iterdir()))
    await_that(lambda: not Folder(f"/proc/{worker}").exists())


@pytest.mark.parametrize("number", sizes(signal.SIGTERM, signal.SIGINT, signal.SIGKILL))
def test_workers_end_with_the_pool(pool: Pool, number: signal.Signals) -> None:
    """However it ends; and they leave no file."""
    workers = [pool.start("one"), pool.start("two")]
    # So long that they watch for the end.
    await_that(lambda: all(watches(each) for each in workers))
    pool.process.send_signal(number)
    code = pool.process.wait(_WAIT_SECONDS)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 0)
    await_that(lambda: not any(runs(each) for each in workers))
    await_that(lambda: not list(pool.temporary.iterdir()))


def test_files_of_workers_go_before_the_pool(pool: Pool) -> None:
    """A pool that is told to end stays until they are removed, many as they are."""
    pool.start("one")
    (scratch,) = pool.temporary.iterdir()
    for number in range(5_000):
        (scratch / str(number)).touch()
    pool.process.terminate()
    assert pool.process.wait(_WAIT_SECONDS) == 0
    assert not list(pool.temporary.iterdir())


@pytest.fixture
def prepared(tmp_path: Folder) -> Iterator[Pool]:
    """A pool of which two processes wait to be workers."""
    started = Pool(tmp_path, spares=2)
    try:
        await_that(lambda: len(started.workers()) == 2)
        yield started
    finally:
        started.end()


def test_processes_that_wait(prepared: Pool) -> None:
    """One becomes the worker; it is replaced when no worker runs any more."""
    first, second = prepared.workers()
    assert not list(prepared.temporary.iterdir())
    prepared.ask("one")
    said = f"started worker at once: one, process {first}"
    await_that(lambda: said in prepared.said.read_text())
    (scratch,) = prepared.temporary.iterdir()
    assert prepared.workers() == [first, second]
    prepared.stop("one")
    await_that(lambda: not runs(first))
    await_that(lambda: not scratch.exists())
    await_that(lambda: len(prepared.workers()) == 2)
    assert second in prepared.workers()
    # More than wait: those are started as they are asked for.
    for name in ("two", "three", "four"):
        prepared.ask(name)
    said = prepared.said.read_text()
    assert said.count("started worker at once") == 3
    assert "started worker four" in said
    assert len(prepared.workers()) == 3


@pytest.mark.parametrize("number", sizes(signal.SIGTERM, signal.SIGINT, signal.SIGKILL))
def test_processes_that_wait_end_with_the_pool(
    prepared: Pool, number: signal.Signals
) -> None:
    """However it ends, without a word of them."""
    waiting = prepared.workers()
    await_that(lambda: all(watches(each) for each in waiting))
    prepared.process.send_signal(number)
    prepared.process.wait(_WAIT_SECONDS)
    await_that(lambda: not any(runs(each) for each in waiting))
    assert "Traceback" not in prepared.said.read_text()


def test_a_process_that_does_not_wait(prepared: Pool) -> None:
    """Another would end likewise: workers are started as they are asked for."""
    for each in prepared.workers():
        os.kill(each, signal.SIGKILL)
    await_that(lambda: "has ended with -9" in prepared.said.read_text())
    worker = prepared.start("one")
    assert f"started worker one, process {worker}" in prepared.said.read_text()
    prepared.stop("one")
    await_that(lambda: not prepared.workers())


def watches(pid: int) -> bool:
    """Whether a worker has started its threads."""
    return len(os.listdir(f"/proc/{pid}/task")) > 1


def test_a_port_that_is_taken(pool: Pool) -> None:
    """Two pools on one port would each get some of the workers."""
    port = pool.address.removeprefix("localhost:")
    done = subprocess.run(
        [*PROGRAM, "pool", f"--port={port}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"able to listen on localhost:{port}; it cannot" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["pool", "--port=70000"], "a port is 0 to 65535"),
        (["pool", "--port=x"], "invalid"),
        (["boot"], "--id, --provision_endpoint"),
        # As an engine calls it.
        (["--id=1"], "boot: error: the following arguments are required: --prov"),
    ],
)
def test_wrong_use(arguments: list[str], says: str) -> None:
    """Exit code 2 and what is missing, without Beam and without a traceback."""
    done = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
