"""The whole program killed: at chosen file operations, and whenever it happens."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

from tests.conftest import Headline
from tests.support import segments
from tests.support.killed_runs import whole_dataset
from tests.support.runs import python
from tests.support.sources import write_csv
from tests.support.stress import sizes

Folder = pathlib.Path

OPTIONS = ("--shards", "4", "--overwrite")
# Replaces `python -m beam_pipeline` and kills itself at an operation. Shards are synced
# in pairs, so that a kill falls between groups, too.
DRIVER = """
import os, signal, sys
from beam_pipeline.cli import main
from tests.support import segments
from tests.support.file_operations import watched
from transforms.storage import drafts

segments.decide(segments.IN_FILES)
drafts._FILES = 2
limit, seen = int(sys.argv[1]), 0

def hook(what, path):
    global seen
    # Only the target's own side counts: Python's caches and Beam's folders do not.
    if {out!r} in path:
        seen += 1
        if seen > limit:
            os.kill(os.getpid(), signal.SIGKILL)

with watched(hook):
    try:
        main(sys.argv[2:])
    finally:
        print("operations", seen, flush=True)
"""


def source_of(folder: Folder, rows: int) -> Folder:
    for part in range(3):
        lines = [f"{part * rows + i},{i / 8},{'abc'[i % 3]}" for i in range(rows)]
        write_csv(folder / f"{part}.csv", "id,x,kind", lines)
    return folder


def arguments(source: Folder, out: Folder, *options: object) -> list[str]:
    return [str(a) for a in ("convert", source, out, *OPTIONS, *options)]


def program(source: Folder, out: Folder, *options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        segments.program(segments.IN_FILES, *arguments(source, out, *options)),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(source: Folder, out: Folder, *options: object) -> str:
    """Runs to the end, which must be a good one; returns what was said."""
    running = program(source, out, *options)
    said, errors = running.communicate()
    assert running.returncode == 0, errors
    return said + errors


class Place:
    """Two sources of one shape, and what each of them gives."""

    def __init__(self, root: Folder, rows: int, *options: object) -> None:
        self.options = options
        self.old_source = source_of(root / "old", rows)
        self.source = source_of(root / "new", rows + 1)
        self.out = root / "work" / "out"
        self.out.parent.mkdir()
        finish(self.old_source, self.out, *options, "--name", "set")
        self.old = whole_dataset(self.out)
        shutil.copytree(self.out, root / "saved")
        self.saved = root / "saved"
        started = time.monotonic()
        finish(self.source, self.out, *options, "--name", "set")
        self.seconds = time.monotonic() - started
        self.new = whole_dataset(self.out)
        assert None not in (self.old, self.new)
        assert self.old != self.new

    def reset(self, *, fresh: bool) -> None:
        shutil.rmtree(self.out.parent)
        self.out.parent.mkdir()
        if not fresh:
            shutil.copytree(self.saved, self.out)

    def check(self, *, fresh: bool) -> str:
        """Checks what a reader finds now, and what a rerun ends with."""
        now = whole_dataset(self.out)
        assert now in (self.new, None if fresh else self.old)
        finish(self.source, self.out, *self.options, "--name", "set")
        assert whole_dataset(self.out) == self.new
        assert os.listdir(self.out.parent) == ["out"]
        return "new" if now == self.new else "before"


@pytest.mark.stress
@pytest.mark.parametrize("points", sizes(2, 20))
def test_row_4_the_program_killed_at_file_operations(
    points: int, tmp_path: Folder, headline: Headline
) -> None:
    """Spread over a whole overwrite, the commit among them; then run again."""
    place = Place(tmp_path, 40, "--workers", 1)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.format(out=str(place.out.parent)))
    line = arguments(place.source, place.out, "--workers", 1, "--name", "set")

    def driven(limit: int) -> subprocess.CompletedProcess[str]:
        place.reset(fresh=False)
        root = pathlib.Path(__file__).parents[2]
        return python(driver, limit, *line, env={**os.environ, "PYTHONPATH": str(root)})

    whole = driven(10**9)
    assert whole.returncode == 0, whole.stderr
    total = int(whole.stdout.rsplit("operations ", 1)[1])
    ended = {"new": 0, "before": 0}
    for number in range(points):
        limit = total - 1 - number * (total - 1) // points
        assert driven(limit).returncode == -signal.SIGKILL
        ended[place.check(fresh=False)] += 1
    headline("H1", f"whole program: {points} of {total} kill points, 0 failures")


@pytest.mark.parametrize("kills", sizes(1, 50))
@pytest.mark.parametrize("workers", sizes(2, 1))
def test_row_2_the_process_group_killed_at_random_times(
    workers: int, kills: int, tmp_path: Folder, headline: Headline
) -> None:
    """Fresh runs and overwrites in turn; a rerun ends with the same bytes."""
    place = Place(tmp_path, 4000, "--workers", workers)
    rng = random.Random(workers)
    ended = {"new": 0, "before": 0}
    for number in range(kills):
        fresh = number % 2 == 0
        place.reset(fresh=fresh)
        running = program(
            place.source, place.out, "--workers", workers, "--name", "set"
        )
        time.sleep(rng.uniform(0.2, 1.0) * place.seconds)
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        ended[place.check(fresh=fresh)] += 1
    headline(
        "H1",
        f"{workers} workers: {kills} kills of the process group at random times, "
        f"0 failures",
    )
