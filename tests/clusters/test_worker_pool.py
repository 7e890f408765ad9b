"""Workers that a pool or a command starts, on a real engine."""

import pathlib
import sys
import sysconfig

import pytest

from tests.clusters.runs import ROWS, committed, convert, same
from tests.support.worker_pool import Pool, await_that

Folder = pathlib.Path
# These workers see this machine's disk.
HERE = ("--runner", "prism", "--shared-output", *ROWS)


@pytest.mark.parametrize("spares", [0, 2])
@pytest.mark.usefixtures("prism")
def test_pool(data: Folder, tmp_path: Folder, spares: int) -> None:
    """The same bytes as locally; the pool's workers end with the job."""
    local, output = tmp_path / "local", tmp_path / "out"
    committed(convert(data / "rows.csv", local, *ROWS), local)
    pool = Pool(tmp_path, spares=spares, PATH=str(tmp_path))
    try:
        await_that(lambda: len(pool.workers()) == spares)
        done = convert(data / "rows.csv", output, *HERE, "--worker-pool", pool.address)
        committed(done, output)
        same(output, local)
        how = "started worker at once:" if spares else "started worker "
        assert how in pool.said.read_text()
        await_that(lambda: "has ended with" in pool.said.read_text())
        await_that(lambda: len(pool.workers()) == spares)
        await_that(lambda: not list(pool.temporary.iterdir()))
    finally:
        pool.end()


@pytest.mark.usefixtures("prism")
def test_pool_that_is_lost(data: Folder, tmp_path: Folder) -> None:
    """Prism says so at once; nothing is committed."""
    gone = Pool(tmp_path)
    gone.end()
    output = tmp_path / "out"
    done = convert(data / "rows.csv", output, *HERE, "--worker-pool", gone.address)
    assert done.returncode == 1
    assert gone.address in done.stderr
    assert not output.exists()


@pytest.mark.usefixtures("prism")
def test_command(data: Folder, tmp_path: Folder) -> None:
    """The installed file starts workers, and gets its variables."""
    local, output = tmp_path / "local", tmp_path / "out"
    committed(convert(data / "rows.csv", local, *ROWS), local)
    command = Folder(sysconfig.get_path("scripts")) / "beam-tfrecord-worker"
    seen = tmp_path / "seen"
    wrapped = tmp_path / "worker"
    wrapped.write_text(
        f'#!/bin/sh\necho "$SAID" >{seen}\nexec {sys.executable} {command} "$@"\n'
    )
    wrapped.chmod(0o755)
    chosen = ("--worker-command", str(wrapped), "--worker-env", "SAID=a b=c")
    done = convert(data / "rows.csv", output, *HERE, *chosen)
    committed(done, output)
    same(output, local)
    assert seen.read_text() == "a b=c\n"
