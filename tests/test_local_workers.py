"""Worker processes: they end with the run, however it ends, and leave nothing."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

Folder = pathlib.Path
ROWS = 1_200_000
SECONDS = 30

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Enough rows for a few seconds of work."""
    path = tmp_path_factory.mktemp("source") / "rows.csv"
    path.write_bytes(b"a,b,c\n" + b"123456,2.5,cat and dog\n" * ROWS)
    return path


@contextlib.contextmanager
def started(csv: Folder, folder: Folder, *flags: str) -> Iterator[subprocess.Popen]:
    """Runs the command in a session of its own; ends it in any case."""
    command = [sys.executable, "-m", "beam_pipeline", "convert", str(csv), "out"]
    command += ["--segments", "files", *flags]
    environment = os.environ | {
        "PYTHONPATH": str(pathlib.Path(__file__).parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def status(pid: int | str) -> tuple[str, int] | None:
    """Returns the state and the parent of a process, or None when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def children(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := status(name)) and seen[1] == pid:
            found.append(int(name))
    return found


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if (seen := status(pid)) and seen[0] not in "ZX"]


def wait_for(condition, process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


def reading(folder: Folder) -> bool:
    """Whether the first segments have been written."""
    return any(folder.glob(".out.beam-tfrecord/*/segments/*"))


def workers_of(process: subprocess.Popen, folder: Folder, count: int) -> list[int]:
    """Waits until the workers are at work and returns their ids."""
    wait_for(lambda: reading(folder), process)
    found = children(process.pid)
    assert len(found) == count
    return found


def finished(process: subprocess.Popen) -> tuple[int, str]:
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


def check_nothing_left(folder: Folder, pids: list[int]) -> None:
    assert [path.name for path in folder.iterdir()] == []
    wait_for(lambda: not alive(pids))


@pytest.mark.parametrize("which", [0, 1])
def test_killed_worker_ends_the_run(csv: Folder, tmp_path: Folder, which: int) -> None:
    """One worker killed from outside: a clear error within seconds, nothing left."""
    with started(csv, tmp_path, "--workers", "2") as process:
        pids = workers_of(process, tmp_path, 2)
        os.kill(sorted(pids)[which], signal.SIGKILL)
        before = time.monotonic()
        code, errors = finished(process)
        assert time.monotonic() - before < 8
        assert code == 1
        assert "worker process" in errors
        assert "ended from outside" in errors
        assert "\n" not in errors.strip()
        check_nothing_left(tmp_path, pids)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_interrupted_run_leaves_nothing(
    csv: Folder, tmp_path: Folder, number: int, expected: int, workers: int
) -> None:
    """Ctrl-C, which reaches all processes, or SIGTERM: one line, no debris.

    What the line says is true: nothing was committed, not even while stopping.
    """
    with started(csv, tmp_path, "--workers", str(workers)) as process:
        pids = workers_of(process, tmp_path, 2 if workers == 2 else 0)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        before = time.monotonic()
        code, errors = finished(process)
        assert time.monotonic() - before < 8
        assert code == expected
        assert "\n" not in errors.strip()
        assert "nothing was committed" in errors
        check_nothing_left(tmp_path, pids)


def test_killed_run_takes_its_workers_along(csv: Folder, tmp_path: Folder) -> None:
    """After kill -9 no worker outlives the run; the next run clears what it left."""
    with started(csv, tmp_path, "--workers", "2") as process:
        pids = workers_of(process, tmp_path, 2)
        process.kill()
        process.wait()
        wait_for(lambda: not alive(pids))
    assert [path.name for path in tmp_path.iterdir()] == [".out.beam-tfrecord"]
    with started(csv, tmp_path, "--limit", "1000", "--quiet") as process:
        assert finished(process) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_success_leaves_no_process(csv: Folder, tmp_path: Folder) -> None:
    """After a committed run its workers are gone and only the dataset is there."""
    with started(csv, tmp_path, "--workers", "2", "--quiet") as process:
        pids = workers_of(process, tmp_path, 2)
        assert finished(process) == (0, "")
        wait_for(lambda: not alive(pids))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


_POOLS = """
import os, pathlib
from beam_pipeline.local_workers import WorkerPool, forked_workers

def children():
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == os.getpid():
            found.append(folder.name)
    return found

with forked_workers(3) as pool:
    assert WorkerPool.current is pool
    assert len(children()) == 3
    assert pool.dead() is None
assert WorkerPool.current is None
assert children() == []

try:
    with forked_workers(2):
        assert len(children()) == 2
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
assert children() == []
"""


def test_a_pool_ends_with_its_body(tmp_path: Folder) -> None:
    """Processes that were never told to work end too, also when the body fails.

    In a process of its own: forks must come before gRPC has threads.
    """
    done = script(_POOLS, tmp_path)
    assert done.returncode == 0, done.stderr


def script(code: str, folder: Folder, *arguments: str) -> subprocess.CompletedProcess:
    """Runs Python code; ends it and its workers when it hangs."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parent.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        out, errors = "", "it hangs"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return subprocess.CompletedProcess(code, process.returncode, out, errors)


_TWO_RUNS = """
import sys
from beam_pipeline.conversion import convert_plan
from beam_pipeline.plan import make_plan
from beam_pipeline.spec import make_spec
for number in range(4):
    spec = make_spec(
        {"source": sys.argv[1], "output": f"out{number}", "workers": 2, "limit": 1000}
    )
    convert_plan(make_plan(spec))
"""


def test_several_runs_in_one_process(csv: Folder, tmp_path: Folder) -> None:
    """A program may convert again: the threads of the first run do not hang it."""
    done = script(_TWO_RUNS, tmp_path, str(csv))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"out{number}" for number in range(4)
    ]
