"""The command line as a process: speed, typos, signals, pipes and terminals."""

import contextlib
import os
import pathlib
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import pytest

from tests.support.outputs import contents, names, rows
from tests.support.runs import command, convert, done, failed, process, python, refused
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv
from tests.support.stress import sizes
from transforms.errors import COMMITTED_NOTE

Folder = pathlib.Path

PROGRAM = [sys.executable, "-m", "beam_pipeline"]
SCRIPT = pathlib.Path(sys.executable).with_name("beam-tfrecord")
ESCAPE = "\x1b"

# Runs the program with a hook into its life: a file named by the first argument
# appears when the step given by the second one begins, and the step then waits.
PAUSED = """
import logging, pathlib, sys, time
from beam_pipeline.beam_internals.loading import spare_imports
from beam_pipeline.cli import main
from tests.support import segments
logging.getLogger().addHandler(logging.NullHandler())
import {module} as module
step = module.{name}
def paused(*args, **kwargs):
    pathlib.Path(sys.argv[1]).write_text("here")
    time.sleep({seconds})
    return step(*args, **kwargs)
module.{name} = paused
# The process is the program's own, whose workers are forks.
spare_imports()
where, arguments = segments.split(sys.argv[2:])
with segments.waiting(where):
    main(arguments)
"""


# Steps to stop the program in: module, function, and how long it then waits.
STEPS = {
    "planning": ("beam_pipeline.planning.plan", "find_inputs", 3),
    "running": ("transforms.shards.write_shard", "draft_shard", 3),
    "long running": ("transforms.shards.write_shard", "draft_shard", 8),
    "about to publish": ("transforms.publishing.local", "publish", 2),
}


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    lines = (f"{number},w{number % 7}" for number in range(2000))
    return write_csv(tmp_path / "source" / "t.csv", "n,w", lines)


class TestHelp:
    @pytest.mark.parametrize(
        ("arguments", "code", "spared"),
        [
            (["--help"], 0, {"apache_beam", "numpy", "pyarrow", "pydantic"}),
            (["convrt"], 2, {"apache_beam", "numpy", "pyarrow", "pydantic"}),
            (["convert", "a", "b", "--seed", "-1"], 2, {"apache_beam"}),
        ],
    )
    def test_what_needs_no_run_is_quick(
        self, arguments: list[str], code: int, spared: set[str]
    ) -> None:
        """The help, a typo and a bad setting answer without what is slow to import."""
        program = (
            "import sys\n"
            "from beam_pipeline.cli import main\n"
            "try:\n    main(sys.argv[1:])\n"
            "finally:\n    print(*sys.modules)\n"
        )
        run = python("-c", program, *arguments, timeout=30)
        assert run.returncode == code
        assert not spared & {*run.stdout.splitlines()[-1].split()}

    def test_version(self) -> None:
        """--version names the program and its version; no word at all is helped."""
        run = done("--version")
        assert re.fullmatch(r"beam-tfrecord, version \d+\.\d+\.\d+\S*\n", run.out)
        assert failed(2).err == done("-h").out

    def test_module_and_script_are_one_program(self) -> None:
        """`python -m beam_pipeline` is `beam-tfrecord`."""
        if not SCRIPT.exists():
            pytest.skip("the console script is not installed")
        run = subprocess.run(
            [SCRIPT, "--help"], capture_output=True, text=True, timeout=30, check=False
        )
        assert run.returncode == 0
        assert run.stdout == process("--help").stdout


class TestBeamFlags:
    @pytest.mark.parametrize(
        ("flag", "named", "meant"),
        [
            ("--direct_num_wrkers=3", "--direct_num_wrkers", "--direct_num_workers"),
            ("--nonsense", "--nonsense", ""),
            ("nonsense", "nonsense", ""),
        ],
    )
    def test_an_unknown_one_is_refused(
        self, flag: str, named: str, meant: str, table: Folder, tmp_path: Folder
    ) -> None:
        """What Beam does not know after -- is exit code 2, named, nothing written."""
        message = refused(2, table, tmp_path / "out", "--", flag)
        assert named in message
        assert meant in message
        assert names(tmp_path) == ["source"]


def started(
    code: str, arguments: Sequence[object], mark: Folder
) -> subprocess.Popen[str]:
    """Starts the program and returns when the paused step has begun."""
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(mark), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(mark.parent)},
    )
    deadline = time.monotonic() + 30
    while not mark.exists():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run


def group(leader: int) -> list[int]:
    """Returns the processes of a process group that have not ended."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
class TestSignals:
    @pytest.mark.parametrize("workers", sizes(2, 1))
    @pytest.mark.parametrize("step", sizes("about to publish", "running"))
    @pytest.mark.parametrize(
        ("number", "code"),
        [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    )
    def test_nothing_is_committed_and_nothing_is_left(
        self,
        number: signal.Signals,
        code: int,
        step: str,
        workers: int,
        table: Folder,
        tmp_path: Folder,
    ) -> None:
        """What it says is true: no dataset, nothing unfinished, no process (row 7)."""
        module, name, seconds = STEPS[step]
        text = PAUSED.format(module=module, name=name, seconds=seconds)
        (tmp_path / "outs").mkdir()
        (tmp_path / "temporary").mkdir()
        mark = tmp_path / "temporary" / "mark"
        options = ("--workers", workers, IN_FILES)
        run = started(
            text, ["convert", table, tmp_path / "outs" / "out", *options], mark
        )
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
        assert run.returncode == code
        # Finished blocks are kept for the next run; unfinished ones are removed.
        assert names(tmp_path / "outs") in ([], [".out.beam-tfrecord"])
        assert list(tmp_path.rglob("*.tmp")) == []
        assert group(run.pid) == []
        assert "nothing was committed" in err
        assert "Traceback" not in err
        assert len(err.strip().splitlines()) == 1
        assert names(tmp_path / "temporary") == ["mark"]

    def test_an_overwrite_that_is_stopped_keeps_the_old(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """Ctrl-C during an overwrite leaves the old dataset, whole (row 7)."""
        out = tmp_path / "outs" / "out"
        convert(table, out)
        before = contents(out)
        module, name, seconds = STEPS["about to publish"]
        text = PAUSED.format(module=module, name=name, seconds=seconds)
        options = ("--overwrite", "--shards", 3)
        run = started(text, ["convert", table, out, *options], tmp_path / "mark")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30)
        assert run.returncode == 130
        assert contents(out) == before
        assert names(out.parent) in (["out"], [".out.beam-tfrecord", "out"])
        assert list(tmp_path.rglob("*.tmp")) == []

    @pytest.mark.stress
    def test_a_stop_is_quick(self, table: Folder, tmp_path: Folder) -> None:
        """Ctrl-C while planning, or in a long step, does not take a step's time."""
        for step, limit in (("planning", 1.0), ("long running", 7.0)):
            module, name, seconds = STEPS[step]
            text = PAUSED.format(module=module, name=name, seconds=seconds)
            mark = tmp_path / step
            run = started(text, ["convert", table, tmp_path / "outs" / "out"], mark)
            began = time.monotonic()
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=30)
            assert time.monotonic() - began < limit
            assert run.returncode == 130


def in_shell(
    arguments: Sequence[object], streams: str
) -> subprocess.CompletedProcess[str]:
    """Runs the program with streams that a shell makes; `{pipe}` has no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    shell = ["bash", "-c", f'"$@" {streams.format(pipe=writer)}', "bash"]
    try:
        return subprocess.run(
            [*shell, *PROGRAM, *map(str, arguments)],
            capture_output=True,
            pass_fds=[writer],
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)


class TestPipes:
    @pytest.mark.parametrize(
        "arguments", sizes(["head", "-n", "2000"], ["inspect"], ["code"], ["verify"])
    )
    def test_head_of_a_reading_command(
        self, arguments: list[str], table: Folder, tmp_path: Folder
    ) -> None:
        """A reader that has seen enough makes no noise."""
        convert(table, tmp_path / "out")
        name, *options = arguments
        run = in_shell([name, tmp_path / "out", *options], ">&{pipe}")
        assert run.returncode in (0, 141)
        assert run.stderr == ""

    @pytest.mark.parametrize("streams", [">&{pipe}", ">/dev/full"])
    def test_a_summary_that_cannot_be_printed_is_no_failure(
        self, streams: str, table: Folder, tmp_path: Folder
    ) -> None:
        """Exit code 1 says that nothing was committed, so it must not be that."""
        run = in_shell(["convert", table, tmp_path / "out"], streams)
        assert len(rows(tmp_path / "out")) == 2000
        assert run.returncode != 1
        assert "Traceback" not in run.stderr
        assert run.stderr == "" or streams == ">/dev/full"

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("convert", "--", "photos", "out"), "'photos'"),
            (("convert", "photos", "--", "--job_name=a", "out"), "'out'"),
            (("convert", "photos", "o", "--", "--flink-master=a:1"), "snake case"),
            (("plan", "photos", "out", "--", "photos"), "'photos'"),
            (("inspect", "--", "out"), "'out'"),
            (("subset", "a", "--", "b", "--split"), "'b', '--split'"),
            (("--", "convert", "photos", "out"), "'convert'"),
        ],
    )
    def test_words_after_two_dashes_are_named(
        self, arguments: tuple[str, ...], named: str
    ) -> None:
        """Where they cannot be flags of Beam, before what is missing without them."""
        run = failed(2, *arguments)
        assert named in run.err
        assert "Beam" in run.err
        assert "must be given" not in run.err

    def test_a_full_disk_for_what_is_asked_for_is_named(self) -> None:
        """What was printed and cannot be written is a failure of standard output."""
        run = in_shell(["--help"], ">/dev/full")
        assert run.returncode == 1
        assert run.stderr.splitlines()[-1].endswith(": standard output")

    @pytest.mark.parametrize("errors", sizes("2>&-", "2>/dev/full", "2>&{pipe}"))
    def test_notes_that_cannot_be_printed_change_nothing(
        self, errors: str, table: Folder, tmp_path: Folder
    ) -> None:
        """Exit codes stay with stderr closed, full, or a pipe without a reader."""
        out = tmp_path / "out"
        convert(table, out)
        # A note says that the dataset is replaced.
        again = ["convert", table, out, "--overwrite", "--shards", 2]
        assert in_shell(again, errors).returncode == 0
        assert len(list(out.glob("*.tfrecord-*"))) == 2
        none = ["convert", tmp_path / "none", out]
        assert in_shell(none, errors).returncode == 2

    def test_a_terminal_that_knows_only_ascii(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """A Korean path in the summary does not fail a committed run (row 136)."""
        out = tmp_path / "자료"
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        run = process("convert", table, out, env=environment)
        assert run.returncode == 0, run.stderr
        assert "Traceback" not in run.stderr


def in_terminal(
    arguments: Sequence[object], environment: Mapping[str, str] = {}
) -> tuple[int, str]:
    """Runs the program in a terminal; returns its exit code and all it shows."""
    master, slave = pty.openpty()
    run = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(master, 65_536):
            shown += piece
    os.close(master)
    return run.wait(timeout=30), shown.decode()


class TestTerminal:
    def test_a_line_moves_and_disappears(self, table: Folder, tmp_path: Folder) -> None:
        """A terminal sees a line of progress, then the table in its place."""
        code, shown = in_terminal(["convert", table, tmp_path / "out"])
        assert code == 0
        assert "%" in shown
        assert ESCAPE in shown
        after = shown[shown.rfind("%") :]
        assert "\r\x1b[K" in after
        assert "committed" in after

    def test_what_can_be_done_next(self, table: Folder, tmp_path: Folder) -> None:
        """After a commit the next commands are printed, and they work."""
        out = tmp_path / "a set; it's $HOME"
        shown = convert(table, out).out
        _, _, after = shown.partition("next: ")
        commands = [line.strip() for line in after.splitlines()]
        assert len(commands) == 2
        assert " --as tensorflow" in commands[1]
        for line in commands:
            program, *arguments = shlex.split(line, comments=True)
            assert program == "beam-tfrecord"
            assert command(*arguments).code == 0
        assert "next:" not in convert(table, tmp_path / "b", "--quiet").out
        assert "next:" not in convert(table, out).out

    def test_a_failing_job_of_two_workers_says_one_line(self, tmp_path: Folder) -> None:
        """An error of a worker is one line, not its log."""
        path = write_csv(tmp_path / "t.csv", "n", [*range(50), "1,1", "2,2"])
        run = process("convert", path, tmp_path / "out", "--workers", 2)
        assert run.returncode == 3
        assert len(run.stderr.splitlines()) == 1


PAUSED_AFTER_COMMIT = """
import pathlib, sys, time
import transforms.stages.commit as module
from beam_pipeline.cli import main
step = module.commit_dataset
def paused(*args, **kwargs):
    digest = step(*args, **kwargs)
    pathlib.Path(sys.argv[1]).write_text("here")
    time.sleep(2)
    return digest
module.commit_dataset = paused
main(sys.argv[2:])
"""


def test_a_stop_after_the_commit_says_so(table: Folder, tmp_path: Folder) -> None:
    """Stopped in the instant after the publish, it does not deny the dataset."""
    out = tmp_path / "outs" / "out"
    out.parent.mkdir()
    run = started(PAUSED_AFTER_COMMIT, ["convert", table, out], tmp_path / "mark")
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert len(rows(out)) == 2000
    assert COMMITTED_NOTE in err
    assert names(out.parent) == ["out"]
