"""The program of workers, as Beam's own pool uses it: real processes, and no engine."""

import os
import pathlib
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest

from beam_pipeline.beam_internals.engine_worker import write_worker
from tests.support.worker_pool import Pool, await_that, runs

Folder = pathlib.Path


@pytest.fixture
def pool(tmp_path: Folder) -> Iterator[Pool]:
    """A pool on a free port; what it has started ends with the test."""
    started = Pool(tmp_path)
    try:
        yield started
    finally:
        started.end()


def test_workers_end_with_the_pool(pool: Pool) -> None:
    """Killed, it cannot end them; and one of them may end before it."""
    first, second = pool.start("one"), pool.start("two")
    # So long that they watch for the end.
    await_that(lambda: all(_watches(each) for each in (first, second)))
    pool.stop("one")
    await_that(lambda: not runs(first))
    assert runs(second)
    pool.process.kill()
    pool.process.wait()
    await_that(lambda: not runs(second))


def _watches(pid: int) -> bool:
    """Whether a worker has started its threads."""
    return len(os.listdir(f"/proc/{pid}/task")) > 1


def test_worker_runs_with_spaces_and_quotes_around(tmp_path: Folder) -> None:
    """The file is executable, and starts this interpreter with this module path."""
    folder = tmp_path / "a 'folder' of $HOME"
    folder.mkdir()
    path = folder / "worker"
    write_worker(str(path))
    assert path.stat().st_mode & stat.S_IXUSR
    done = subprocess.run(
        [path, "--id=1"], capture_output=True, text=True, cwd="/", check=False
    )
    # It has come as far as its arguments.
    assert done.returncode == 2
    assert "required: --provision_endpoint" in done.stderr


def test_what_a_worker_starts_has_a_module_path_of_its_own(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be Python of another version. Any folder is found, as one with a colon."""
    folder = tmp_path / "a:b" / "beam_pipeline" / "beam_internals"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "engine_worker.py").write_text(
        "import os\ndef main(): print(os.environ.get('PYTHONPATH'))\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a:b"), *sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    write_worker(str(tmp_path / "worker"))
    done = subprocess.run([tmp_path / "worker"], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"None\n"
