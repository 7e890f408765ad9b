"""Workers that a pool or the engine starts, on a real engine, by Beam's own flags."""

import json
import pathlib
import sys
import sysconfig

import pytest

from tests.clusters.runs import ROWS, committed, convert, same
from tests.support.worker_pool import Pool

Folder = pathlib.Path
# These workers see this machine's disk.
HERE = ("--runner", "prism", "--shared-output", *ROWS)


@pytest.mark.usefixtures("prism")
def test_pool_that_is_lost(data: Folder, tmp_path: Folder) -> None:
    """Prism says so at once; nothing is committed."""
    gone = Pool(tmp_path)
    gone.end()
    output = tmp_path / "out"
    done = convert(data / "rows.csv", output, *HERE, beam_flags=gone.flags)
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
    config = json.dumps({"command": str(wrapped), "env": {"SAID": "a b=c"}})
    chosen = ("--environment_type=PROCESS", f"--environment_config={config}")
    done = convert(data / "rows.csv", output, *HERE, beam_flags=chosen)
    committed(done, output)
    same(output, local)
    assert seen.read_text() == "a b=c\n"
