"""Worker processes: they end with the run, however it ends, and leave nothing."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.stress import sizes
from tests.support.worker_pool import children_of, runs

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


# How the command line starts, whose workers are forks, and how a user's program does,
# whose workers are new interpreters.
FORKS = ("-m", "beam_pipeline")
NEW = ("-c", "import sys; from beam_pipeline.cli import main; main(sys.argv[1:])")


@contextlib.contextmanager
def session(command: Sequence[str], folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in a session of its own; ends all of it in any case."""
    environment = os.environ | {
        "PYTHONPATH": str(pathlib.Path(__file__).parents[3]),
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


def started(
    csv: Folder,
    folder: Folder,
    *flags: str,
    under: Sequence[str] = (),
    program: Sequence[str] = FORKS,
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Runs a conversion, perhaps under another program."""
    arguments = ("convert", str(csv), "out", *flags)
    return session([*under, sys.executable, *program, *arguments], folder)


def wait_for(condition: Any, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


def reading(folder: Folder) -> bool:
    """Whether the first segments have been written."""
    return any(folder.glob(".out.beam-tfrecord/*/segments/*"))


def workers_of(process: subprocess.Popen[str], folder: Folder, count: int) -> list[int]:
    """Waits until the workers are at work and returns their ids."""
    wait_for(lambda: reading(folder), process)
    found = children_of(process.pid)
    assert len(found) == count
    return found


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


def check_only_finished_work_left(folder: Folder, pids: list[int]) -> None:
    """No process, no dataset, no unfinished file; the next run takes the rest over."""
    wait_for(lambda: not any(map(runs, pids)))
    assert {path.name for path in folder.iterdir()} <= {".out.beam-tfrecord"}
    assert list(folder.glob(".out.beam-tfrecord/*/attempts/*")) == []
    assert list(folder.rglob("*.tmp")) == []


def starting(process: subprocess.Popen[str], folder: Folder) -> bool:
    return len(children_of(process.pid)) == 2


def writing(process: subprocess.Popen[str], folder: Folder) -> bool:
    """Whether the last stages are under way: a shard is finished."""
    return any(folder.glob(".out.beam-tfrecord/*/dataset/*"))


def at_work(process: subprocess.Popen[str], folder: Folder) -> bool:
    return reading(folder)


@pytest.mark.parametrize(
    ("moment", "which", "program"),
    [
        pytest.param(starting, 0, FORKS, marks=pytest.mark.stress),
        pytest.param(starting, 0, NEW, marks=pytest.mark.stress),
        pytest.param(at_work, 0, FORKS, marks=pytest.mark.stress),
        (at_work, 1, FORKS),
        pytest.param(at_work, 1, NEW, marks=pytest.mark.stress),
        pytest.param(writing, 0, FORKS, marks=pytest.mark.stress),
    ],
)
def test_killed_worker_ends_the_run(
    csv: Folder,
    tmp_path: Folder,
    moment: Callable[..., bool],
    which: int,
    program: Sequence[str],
) -> None:
    """Killed at any moment: a clear error within 5 s, no orphan (row 12).

    `starting` is before it has got its work.
    """
    flags = ("--workers", "2", "--shards", "8")
    with started(csv, tmp_path, *flags, program=program) as process:
        wait_for(lambda: moment(process, tmp_path), process)
        pids = children_of(process.pid)
        os.kill(sorted(pids)[which], signal.SIGKILL)
        before = time.monotonic()
        code, errors = finished(process)
        assert time.monotonic() - before < 5
        assert code == 1
        assert "worker process" in errors
        assert "ended from outside" in errors
        assert "\n" not in errors.strip()
        check_only_finished_work_left(tmp_path, pids)


_KILLED_IN_COMMIT = """
import os, signal, sys
from beam_pipeline.beam_internals.loading import spare_imports
from beam_pipeline.cli import main
from transforms.stages import commit
from transforms.publishing import local
step = local.publish
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def publish(*arguments, **options):
    if sys.argv[1] == "before":
        die()
    step(*arguments, **options)
    die()
local.publish = publish
# The process is the program's own, whose workers are forks.
spare_imports()
main(sys.argv[2:])
"""


@pytest.mark.parametrize("moment", sizes("before", "after"))
def test_worker_killed_in_the_commit(tmp_path: Folder, moment: str) -> None:
    """The target is old or new, never between, and the next run ends well (row 12)."""
    table = tmp_path / "t.csv"
    table.write_bytes(b"a,b\n" + b"1,2\n" * 100)
    arguments = ["convert", str(table), "out", "--workers", "2", "--quiet"]
    before = time.monotonic()
    done = script(_KILLED_IN_COMMIT, tmp_path, moment, *arguments)
    assert time.monotonic() - before < 15
    assert done.returncode == 1
    assert "ended from outside" in done.stderr
    assert (tmp_path / "out" / "manifest.json").exists() == (moment == "after")
    command = f"from beam_pipeline.cli import main; main({arguments})"
    assert script(command, tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "t.csv"]


def test_ignored_signals_stay_ignored(csv: Folder, tmp_path: Folder) -> None:
    """Under nohup the end of the terminal does not stop a run."""
    with started(csv, tmp_path, "--limit", "1000", under=["nohup"]) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGHUP)
        assert finished(process)[0] == 0


@pytest.mark.parametrize("program", sizes(FORKS, NEW))
def test_killed_run_takes_its_workers_along(
    csv: Folder, tmp_path: Folder, program: Sequence[str]
) -> None:
    """After kill -9 no worker outlives the run; the next run clears what it left."""
    with started(csv, tmp_path, "--workers", "2", program=program) as process:
        pids = workers_of(process, tmp_path, 2)
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(runs, pids)))
    assert [path.name for path in tmp_path.iterdir()] == [".out.beam-tfrecord"]
    with started(csv, tmp_path, "--limit", "1000", "--quiet") as process:
        assert finished(process) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


_POOLS = """
import os, pathlib, sys, tempfile
from beam_pipeline.running.workers import local_workers

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

log = tempfile.TemporaryFile()
options = {"forks": sys.argv[1] == "forks", "log": log}
with local_workers(3, **options) as pool:
    assert len(children()) == 3
    assert pool.failure() is None
assert children() == []

# One that ends by a signal once it was told to stop fails no run that goes well.
with local_workers(1, **options) as pool:
    os.kill(pool.start("worker", "localhost:1"), 9)
    pool.let_go(int(children()[0]))
    assert pool.failure() is None
    assert pool.failure(failed=True) is not None

try:
    with local_workers(2, **options):
        assert len(children()) == 2
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
assert children() == []
"""


@pytest.mark.parametrize("how", sizes("forks", "new"))
def test_a_pool_ends_with_its_body(tmp_path: Folder, how: str) -> None:
    """Processes that never got any work end too, even if the body fails.

    In a process of its own: forks must come before gRPC has threads.
    """
    done = script(_POOLS, tmp_path, how)
    assert done.returncode == 0, done.stderr


def script(
    code: str, folder: Folder, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code; ends it and its workers when it hangs."""
    with session([sys.executable, "-c", code, *arguments], folder) as process:
        try:
            out, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            out, errors = "", "it hangs"
    return subprocess.CompletedProcess(code, process.returncode, out, errors)


_AFTER_BEAM = """
import os, pathlib, sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
import beam_tfrecord

flags = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
with beam.Pipeline("FnApiRunner", PipelineOptions(flags)) as pipeline:
    pipeline | beam.Create([1])

def noted(batch):
    pathlib.Path(f"by-{os.getpid()}").touch()
    return batch

for name in ("first", "second"):
    steps = beam.Map(noted)
    beam_tfrecord.convert(sys.argv[1], name, between=steps, workers=2, limit=1000)
print(os.getpid())
"""


@pytest.mark.stress
def test_conversions_in_a_process_with_threads(csv: Folder, tmp_path: Folder) -> None:
    """Threads of gRPC and of Beam, from other pipelines or our own, hang no worker."""
    done = script(_AFTER_BEAM, tmp_path, str(csv))
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert made >= {"first", "second"}
    by = made - {"first", "second"}
    assert len(by) >= 2, "a process for each conversion, or more"
    assert f"by-{done.stdout.split()[-1]}" not in by


_IN_A_FORK = """
import os, sys, threading
import beam_tfrecord
beam_tfrecord.convert(sys.argv[1], "parent", workers=2, limit=5000)
if not os.fork():
    beam_tfrecord.convert(sys.argv[1], "child", workers=2, limit=5000)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
_IN_A_STEP = """
import os, sys
import apache_beam as beam
import beam_tfrecord

def convert(batch, source):
    name = f"inner-{os.getpid()}"
    beam_tfrecord.convert(source, name, workers=2, limit=100, overwrite=True)
    return batch

folder = os.path.dirname(sys.argv[1])
steps = beam.Map(convert, sys.argv[1])
options = {"workers": 2, "limit": 100_000}
beam_tfrecord.convert(sys.argv[1], "outer", between=steps, **options)
"""

_IN_THREADS = """
import logging, sys, threading
import beam_tfrecord
from concurrent.futures import ThreadPoolExecutor

loggers = [logging.getLogger(name) for name in ("", "apache_beam")]
loggers.append(logging.getLogger("transforms.storage.retry"))

def state():
    found = [(each.level, each.propagate, list(each.handlers)) for each in loggers]
    return found, threading.excepthook

def convert(number):
    options = {"workers": 1 + number % 3, "limit": 5000}
    return beam_tfrecord.convert(sys.argv[1], f"out{number}", **options).digest

convert(0)
before = state()
with ThreadPoolExecutor(4) as pool:
    assert len(set(pool.map(convert, range(1, 7)))) == 1
assert state() == before, (before, state())
"""


@pytest.mark.stress
@pytest.mark.parametrize(
    "code", [_IN_A_FORK, _IN_A_STEP, _IN_THREADS], ids=["fork", "step", "threads"]
)
def test_conversions_within_and_beside_others(
    csv: Folder, tmp_path: Folder, code: str
) -> None:
    """A fork has no threads of Beam, a worker must not fork, all have own workers."""
    done = script(code, tmp_path, str(csv))
    assert done.returncode == 0, done.stderr


def test_workers_import_what_the_caller_does(csv: Folder, tmp_path: Folder) -> None:
    """No module of the current folder, and this program from where it is."""
    (tmp_path / "signal.py").write_text("raise RuntimeError('not asked for')")
    (tmp_path / "transforms.py").write_text("raise RuntimeError('another one')")
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "own.py").write_text("def same(batch): return batch")
    code = (
        "import sys; sys.path = [path for path in sys.path if path]\n"
        "import signal, apache_beam as beam, beam_tfrecord\n"
        "sys.path[:0] = ['steps', '']\n"
        "from own import same\n"
        "options = {'workers': 2, 'limit': 100, 'between': beam.Map(same)}\n"
        "beam_tfrecord.convert(sys.argv[1], 'out', **options)\n"
    )
    done = script(code, tmp_path, str(csv))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "manifest.json").exists()


_STOPPED_AT_THE_START = """
import os, signal, sys, threading, time
import beam_tfrecord
from beam_pipeline.running import convert

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()

def stop():
    while not children():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=stop).start()
try:
    beam_tfrecord.convert(sys.argv[1], "out", workers=8)
except KeyboardInterrupt:
    # One that was just being started ends by itself.
    end = time.monotonic() + 20
    while children() and time.monotonic() < end:
        os.waitpid(-1, os.WNOHANG)
        time.sleep(0.05)
    sys.exit(8 if children() else 7)
"""


@pytest.mark.stress
def test_a_stop_while_workers_start_leaves_none(csv: Folder, tmp_path: Folder) -> None:
    """A notebook lives on after Ctrl-C; its workers do not."""
    assert script(_STOPPED_AT_THE_START, tmp_path, str(csv)).returncode == 7


_FAILED = """
import logging, sys, threading
import apache_beam as beam
import beam_tfrecord

class BadRow(Exception):
    pass

def refuse(batch):
    raise BadRow("row 17 has a wrong price")

before = logging.getLogger().handlers[:]
try:
    options = {"workers": int(sys.argv[2]), "between": beam.Map(refuse)}
    beam_tfrecord.convert(sys.argv[1], "out", limit=10, **options)
except beam_tfrecord.BeamTFRecordError as error:
    print(error)
assert logging.getLogger().handlers == before
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("workers", sizes(2, 1))
def test_a_failed_run_is_explained(csv: Folder, tmp_path: Folder, workers: int) -> None:
    """By the error of the step; threads of the caller can be heard afterwards."""
    done = script(_FAILED, tmp_path, str(csv), str(workers))
    assert done.stdout == (
        "The pipeline failed in 'Between': BadRow: row 17 has a wrong price. "
        "Nothing was committed.\n"
    )
    assert "ZeroDivisionError" in done.stderr
    assert "BadRow" not in done.stderr


@pytest.mark.parametrize(
    ("interpreter", "reason"),
    [
        (sys.executable, "one ended with exit code 1: ModuleNotFoundError: "),
        pytest.param(
            "/bin/false", "one ended with exit code 1.", marks=pytest.mark.stress
        ),
        pytest.param(
            "/missing/python",
            "No such file or directory: '/missing/python'",
            marks=pytest.mark.stress,
        ),
    ],
)
def test_interpreters_that_do_not_start(
    csv: Folder, tmp_path: Folder, interpreter: str, reason: str
) -> None:
    """Python inside another program may not know its own interpreter."""
    code = (
        "import os, sys, beam_tfrecord\n"
        # All is loaded before the path is lost.
        "from beam_pipeline.running import convert\n"
        "sys.executable = sys.argv[2]\n"
        "if os.path.exists(sys.executable):\n"
        "    sys.path = []\n"
        "try:\n"
        "    beam_tfrecord.convert(sys.argv[1], 'out', workers=2)\n"
        "except beam_tfrecord.BeamTFRecordError as error:\n"
        "    print(error)\n"
    )
    done = script(code, tmp_path, str(csv), interpreter)
    assert "Worker processes must start as " in done.stdout, done.stderr
    assert reason in done.stdout
    assert "With --workers 1 this process does their work." in done.stdout
    assert not (tmp_path / "out").exists()


_REFUSED = """
import sys, threading
from beam_pipeline.cli import main
start = threading.Thread.start

def refused(thread):
    if thread.name.startswith(sys.argv[1]):
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = refused
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    "run",
    # One process needs no connection, and so no other threads.
    sizes(
        *(("job", "2"), ("beam_control_read", "2"), ("read_grpc", "2")),
        *(("Thread-", "2"), ("job", "1"), ("Thread-", "1")),
    ),
    ids=" ".join,
)
def test_refused_thread_ends_the_run(tmp_path: Folder, run: tuple[str, str]) -> None:
    """A thread that cannot start here or in a worker ends the run, and names memory."""
    name, workers = run
    (tmp_path / "t.csv").write_bytes(b"a,b\n" + b"1,2\n" * 100)
    arguments = ["convert", "t.csv", "out", "--workers", workers, "--quiet"]
    done = script(_REFUSED, tmp_path, name, *arguments)
    assert done.returncode == 1
    assert "memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (("bash", "-c", 'ulimit -n 28; exec "$@"', "-"), "ulimit -n"),
        (("unshare", "-n"), "loopback"),
    ],
)
def test_missing_means_are_named_at_once(
    tmp_path: Folder, before: Sequence[str], cause: str
) -> None:
    """Without descriptors or loopback workers end with the cause; one process works."""
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make a network namespace")
    (tmp_path / "t.csv").write_bytes(b"a,b\n" + b"1,2\n" * 100)
    for workers, code in (("2", 1), ("1", 0)):
        arguments = ("--workers", workers, "--quiet")
        with started(tmp_path / "t.csv", tmp_path, *arguments, under=before) as process:
            status_seen, errors = finished(process)
        assert status_seen == code
        assert (cause in errors) == ("--workers 1" in errors) == bool(code)
